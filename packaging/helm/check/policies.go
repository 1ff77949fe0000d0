package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Has larderd start with the policies of a rendering: it reads them after its options.
func checkPolicies(files *corev1.ConfigMap, larderd string) error {
	policies, found := files.Data["namespaces.toml"]
	if !found {
		return nil
	}
	folder, err := os.MkdirTemp("", "chart")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	file, started := filepath.Join(folder, "namespaces.toml"), filepath.Join(folder, "ports")
	if err := os.WriteFile(file, []byte(policies), 0o644); err != nil {
		return err
	}
	self, err := user.Current()
	if err != nil {
		return err
	}
	server := exec.Command(larderd, "--port=0", "--listen=127.0.0.1", "--user="+self.Username,
		"--namespaces="+file, "--store="+filepath.Join(folder, "store"))
	server.Env = append(os.Environ(), "MEMCACHED_PORT_FILENAME="+started)
	said := bytes.Buffer{}
	server.Stderr = &said
	if err := server.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	for {
		select {
		case err := <-ended:
			return fmt.Errorf("larderd with %s: %w: %s", policies, err, said.String())
		case <-time.After(10 * time.Millisecond):
			if _, err := os.Stat(started); err == nil {
				err := server.Process.Kill()
				<-ended
				return err
			}
		}
	}
}

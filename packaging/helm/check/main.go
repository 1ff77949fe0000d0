// Checks a Helm chart without a cluster: lints it as `helm lint --strict` does, renders it with its default values and
// with each file of its folder `ci`, reads what comes out as Kubernetes' own types, in which a field that there is not
// is an error, and lets larderd read the options that it would be started with, and the policies of its namespaces. The
// chart's alerts must be those of RULES.
//
//	check CHART LARDERD RULES
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/releaseutil"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
)

func main() {
	if err := check(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func check(folder, larderd, rules string) error {
	if err := checkCopy(filepath.Join(folder, "files", filepath.Base(rules)), rules); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(folder, "ci", "*-values.yaml"))
	if err != nil {
		return err
	}
	objects := 0
	for _, file := range append([]string{""}, files...) {
		values := chartutil.Values{}
		if file != "" {
			if values, err = chartutil.ReadValuesFile(file); err != nil {
				return err
			}
		}
		n, err := checkWith(folder, larderd, rules, values)
		if err != nil {
			return fmt.Errorf("%s with %q: %w", folder, filepath.Base(file), err)
		}
		objects += n
	}
	for _, wrong := range impossible {
		if _, err := render(folder, wrong); err == nil {
			return fmt.Errorf("%s takes %v", folder, wrong)
		}
	}
	fmt.Printf("%d objects of %d renderings\n", objects, len(files)+1)
	return nil
}

// What the schema of the values has to refuse.
var impossible = []chartutil.Values{
	{"replicas": 3},
	{"replicaCount": "three"},
	{"memoryMebibytes": 0},
	{"log": map[string]any{"level": "loud"}},
	{"tls": map[string]any{"enabled": true}},
	{"auth": map[string]any{"mode": "ascii"}},
	{"service": map[string]any{"port": 80}},
	{"metrics": map[string]any{"prometheusRule": map[string]any{"enabled": "yes"}}},
	{"metrics": map[string]any{"serviceMonitor": map[string]any{"every": "30s"}}},
	{"store": map[string]any{"backups": map[string]any{"tokenSecretName": "token"}}},
	{"store": map[string]any{"enabled": true, "backups": map[string]any{"schedule": "30 3 * * *"}}},
	{"sites": map[string]any{"enabled": true, "tokenSecretName": "token"}},
	site(chartutil.Values{"replicaCount": 2}),
	site(chartutil.Values{"store": map[string]any{"enabled": false}}),
	site(chartutil.Values{"tls": map[string]any{"enabled": false}}),
	site(chartutil.Values{"sites": map[string]any{"tokenSecretName": ""}}),
	site(chartutil.Values{"sites": map[string]any{"number": 256}}),
	site(chartutil.Values{"sites": map[string]any{"peers": map[string]any{"b": "b.example:11311"}}}),
	{"reloadSecs": -1},
	{"extraVolumes": map[string]any{}},
}

// A site with other values.
func site(values chartutil.Values) chartutil.Values {
	return chartutil.CoalesceTables(values, chartutil.Values{
		"store": map[string]any{"enabled": true},
		"tls":   map[string]any{"enabled": true, "secretName": "tls"},
		"sites": map[string]any{"enabled": true, "tokenSecretName": "token"},
	})
}

// How many objects come of these values.
func checkWith(folder, larderd, rules string, values chartutil.Values) (int, error) {
	for _, message := range lint.All(folder, values, "cache", true).Messages {
		if message.Severity > support.InfoSev {
			return 0, message
		}
	}
	rendered, err := render(folder, values)
	if err != nil {
		return 0, err
	}
	objects := 0
	monitoring := monitoring{}
	for name, text := range rendered {
		if filepath.Base(name) == "NOTES.txt" {
			if strings.TrimSpace(text) == "" {
				return 0, fmt.Errorf("%s is empty", name)
			}
			continue
		}
		for _, manifest := range releaseutil.SplitManifests(text) {
			isRead, err := monitoring.read(manifest)
			if err != nil {
				return 0, fmt.Errorf("%s: %w\n%s", name, err, manifest)
			}
			if isRead {
				objects++
				continue
			}
			object, _, err := strict.Decode([]byte(manifest), nil, nil)
			if err != nil {
				return 0, fmt.Errorf("%s: %w\n%s", name, err, manifest)
			}
			switch object := object.(type) {
			case *appsv1.StatefulSet:
				if err := checkServers(object, larderd); err != nil {
					return 0, fmt.Errorf("%s: %w", name, err)
				}
			case *corev1.ConfigMap:
				if err := checkPolicies(object, larderd); err != nil {
					return 0, fmt.Errorf("%s: %w", name, err)
				}
			case *batchv1.CronJob:
				pod := object.Spec.JobTemplate.Spec.Template
				if err := checkVolumes(pod.Spec, nil); err != nil {
					return 0, fmt.Errorf("%s: %w", name, err)
				}
				script := exec.Command("sh", "-n", "-c", pod.Spec.Containers[0].Args[0])
				if said, err := script.CombinedOutput(); err != nil {
					return 0, fmt.Errorf("%s: %s", name, said)
				}
			case *corev1.Service:
				// Another one may be for sites alone.
				if object.Spec.ClusterIP == corev1.ClusterIPNone {
					monitoring.service = object
				}
			}
			objects++
		}
	}
	return objects, monitoring.check(rules, values)
}

// Refuses fields that there are not, and those that are there twice.
var strict runtime.Serializer = json.NewSerializerWithOptions(
	json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{Yaml: true, Strict: true})

func render(folder string, values chartutil.Values) (map[string]string, error) {
	var loaded *chart.Chart
	loaded, err := loader.Load(folder)
	if err != nil {
		return nil, err
	}
	release := chartutil.ReleaseOptions{Name: "cache", Namespace: "web", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(loaded, values, release, nil)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true}.Render(loaded, all)
}

// What the types cannot tell.
func checkServers(set *appsv1.StatefulSet, larderd string) error {
	pod := set.Spec.Template
	selector := labels.SelectorFromSet(set.Spec.Selector.MatchLabels)
	if !selector.Matches(labels.Set(pod.Labels)) {
		return fmt.Errorf("the selector %v does not find its pods", selector)
	}
	container := pod.Spec.Containers[0]
	// The last option prints the version, once all before it have been read.
	read := exec.Command(larderd, append(slices.Clone(container.Args), "-V")...)
	if said, err := read.CombinedOutput(); err != nil {
		return fmt.Errorf("larderd %v: %s", container.Args, said)
	}
	for _, arg := range container.Args {
		mebibytes, found := strings.CutPrefix(arg, "--memory-limit=")
		if !found {
			continue
		}
		cache := resource.MustParse(mebibytes + "Mi")
		if limit := container.Resources.Limits.Memory(); limit.Cmp(cache) <= 0 {
			return fmt.Errorf("a cache of %v does not fit into %v", cache.String(), limit)
		}
	}
	for _, arg := range container.Args {
		for _, word := range strings.FieldsFunc(arg, func(r rune) bool { return r == '=' || r == ',' }) {
			isBelow := func(mount corev1.VolumeMount) bool { return strings.HasPrefix(word, mount.MountPath+"/") }
			if strings.HasPrefix(word, "/") && !slices.ContainsFunc(container.VolumeMounts, isBelow) {
				return fmt.Errorf("%s is in no volume", word)
			}
		}
	}
	return checkVolumes(pod.Spec, set.Spec.VolumeClaimTemplates)
}

// All volumes are mounted, and all mounts are of volumes.
func checkVolumes(pod corev1.PodSpec, claims []corev1.PersistentVolumeClaim) error {
	mounted := map[string]bool{}
	for _, mount := range pod.Containers[0].VolumeMounts {
		mounted[mount.Name] = true
	}
	volumes := []string{}
	for _, volume := range pod.Volumes {
		volumes = append(volumes, volume.Name)
	}
	for _, claim := range claims {
		volumes = append(volumes, claim.Name)
	}
	for _, volume := range volumes {
		if !mounted[volume] {
			return fmt.Errorf("the volume %s is mounted nowhere", volume)
		}
		delete(mounted, volume)
	}
	if len(mounted) > 0 {
		return fmt.Errorf("mounts without volumes: %v", mounted)
	}
	return nil
}

// Exercises a server with gomemcache: go run . HOST PORT [tls CA_FILE]
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

const prefix = "gomemcache:"

var checks int

func same(what string, got, want any) {
	checks++
	if got != want {
		fmt.Fprintf(os.Stderr, "gomemcache: %s: got %.200v, want %.200v\n", what, got, want)
		os.Exit(1)
	}
}

func is(what string, got, want error) {
	same(fmt.Sprintf("%s (%v)", what, got), errors.Is(got, want), true)
}

func main() {
	c := memcache.New(net.JoinHostPort(os.Args[1], os.Args[2]))
	c.Timeout = 10 * time.Second
	door := "plain"
	if len(os.Args) > 3 {
		door = os.Args[3]
	}
	if door == "tls" {
		c.DialContext = dialer(os.Args[4]).DialContext
	}
	item := func(key, value string) *memcache.Item {
		return &memcache.Item{Key: prefix + key, Value: []byte(value)}
	}
	get := func(key string) string {
		found, err := c.Get(prefix + key)
		if err != nil {
			return err.Error()
		}
		return string(found.Value)
	}

	is("ping", c.Ping(), nil)
	is("set", c.Set(&memcache.Item{Key: prefix + "a", Value: []byte("text"), Flags: 4294967295}), nil)
	found, err := c.Get(prefix + "a")
	is("get", err, nil)
	same("value", string(found.Value), "text")
	same("flags", found.Flags, uint32(4294967295))
	_, err = c.Get(prefix + "missing")
	is("get of a missing key", err, memcache.ErrCacheMiss)

	_ = c.Delete(prefix + "new")
	is("add", c.Add(item("new", "x")), nil)
	is("add of a key that is there", c.Add(item("new", "y")), memcache.ErrNotStored)
	is("replace", c.Replace(item("new", "z")), nil)
	is("replace of a missing key", c.Replace(item("missing", "z")), memcache.ErrNotStored)
	is("append", c.Append(item("a", ">")), nil)
	is("prepend", c.Prepend(item("a", "<")), nil)
	same("what they made", get("a"), "<text>")
	is("append to a missing key", c.Append(item("missing", "x")), memcache.ErrNotStored)

	keys := []string{prefix + "missing"}
	for i := range 100 {
		key := fmt.Sprintf("many%d", i)
		is("set", c.Set(item(key, fmt.Sprint("value ", i))), nil)
		keys = append(keys, prefix+key)
	}
	many, err := c.GetMulti(keys)
	is("multi", err, nil)
	same("how many", len(many), 100)
	same("one of them", string(many[prefix+"many42"].Value), "value 42")

	found, err = c.Get(prefix + "a")
	is("get for cas", err, nil)
	found.Value = []byte("new")
	is("cas", c.CompareAndSwap(found), nil)
	found.Value = []byte("newer")
	is("cas of what has changed", c.CompareAndSwap(found), memcache.ErrCASConflict)
	is("delete", c.Delete(prefix+"a"), nil)
	is("cas of what is gone", c.CompareAndSwap(found), memcache.ErrCacheMiss)
	is("delete of a missing key", c.Delete(prefix+"a"), memcache.ErrCacheMiss)

	is("a number", c.Set(item("n", "10")), nil)
	n, err := c.Increment(prefix+"n", 5)
	is("incr", err, nil)
	same("incr", n, uint64(15))
	n, err = c.Decrement(prefix+"n", 20)
	is("decr", err, nil)
	same("decr", n, uint64(0))
	_, err = c.Increment(prefix+"missing", 1)
	is("incr of a missing key", err, memcache.ErrCacheMiss)
	is("a word", c.Set(item("word", "x")), nil)
	_, err = c.Increment(prefix+"word", 1)
	same("incr of a word", err != nil, true)

	is("ttl", c.Set(&memcache.Item{Key: prefix + "ttl", Value: []byte("x"), Expiration: 1}), nil)
	is("ttl", c.Set(&memcache.Item{Key: prefix + "touched", Value: []byte("x"), Expiration: 1}), nil)
	is("touch", c.Touch(prefix+"touched", 100), nil)
	is("touch of a missing key", c.Touch(prefix+"missing", 100), memcache.ErrCacheMiss)
	found, err = c.GetAndTouch(prefix+"touched", 100)
	is("gat", err, nil)
	same("gat", string(found.Value), "x")
	time.Sleep(2100 * time.Millisecond)
	_, err = c.Get(prefix + "ttl")
	is("after its time", err, memcache.ErrCacheMiss)
	same("touched in time", get("touched"), "x")

	large := bytes.Repeat([]byte("0123456789\r\n"), 60_000)
	is("a large value", c.Set(&memcache.Item{Key: prefix + "large", Value: large}), nil)
	same("comes back", get("large") == string(large), true)
	err = c.Set(&memcache.Item{Key: prefix + "huge", Value: make([]byte, 1<<21)})
	same("one that is too large", err != nil, true)
	same("the next connection is good", get("new"), "z")

	is("close", c.Close(), nil)

	if door == "tls" {
		c.DialContext = (&tls.Dialer{}).DialContext
		_, err = c.Get(prefix + "new")
		var unknown x509.UnknownAuthorityError
		same("a server that nobody vouches for", errors.As(err, &unknown), true)
	}
	fmt.Printf("gomemcache, %s: %d checks\n", door, checks)
}

// dialer trusts the certificates in a file and no others.
func dialer(path string) *tls.Dialer {
	pem, err := os.ReadFile(path)
	is("read "+path, err, nil)
	authorities := x509.NewCertPool()
	same("certificates in "+path, authorities.AppendCertsFromPEM(pem), true)
	return &tls.Dialer{Config: &tls.Config{RootCAs: authorities}}
}

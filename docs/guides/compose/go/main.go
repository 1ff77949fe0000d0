package main

import (
	"fmt"
	"os"

	"github.com/bradfitz/gomemcache/memcache"
)

func main() {
	cache := memcache.New(os.Getenv("LARDER"))
	if err := cache.Set(&memcache.Item{Key: "greeting", Value: []byte("hello"), Expiration: 60}); err != nil {
		panic(err)
	}
	item, err := cache.Get("greeting")
	if err != nil {
		panic(err)
	}
	fmt.Println(string(item.Value))
}

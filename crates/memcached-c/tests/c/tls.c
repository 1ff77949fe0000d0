/* Speaks TLS, which libmemcached cannot: tls SERVER CA_FILE. It knows what is right. */
#include "transcript.h"
#include <libmemcached/util.h>

static int checks;

static void same(const char *what, bool is_so, memcached_st *client)
{
  checks++;
  if (!is_so) {
    fprintf(stderr, "tls: %s: %s\n", what, client ? memcached_last_error_message(client) : "no client");
    exit(1);
  }
}

static bool has(memcached_st *client, const char *key, const char *want, uint32_t want_flags)
{
  size_t length = 0;
  uint32_t flags = 0;
  memcached_return_t rc;
  char *value = memcached_get(client, S(key), &length, &flags, &rc);
  bool is_so = value && length == strlen(want) && memcmp(value, want, length) == 0 && flags == want_flags;
  free(value);
  return is_so;
}

static void speaks(const char *server, const char *options, bool binary)
{
  char text[1000];
  snprintf(text, sizeof text, "--SERVER=%s %s%s", server, options, binary ? " --BINARY-PROTOCOL" : "");
  memcached_st *client = memcached(text, strlen(text));
  same(text, client != NULL, client);
  same("set", memcached_set(client, S("tls"), S("secret"), 0, 5) == MEMCACHED_SUCCESS, client);
  same("get", has(client, "tls", "secret", 5), client);
  memcached_st *copy = memcached_clone(NULL, client);
  same("get of a clone", has(copy, "tls", "secret", 5), copy);
  memcached_free(copy);
  char *large = malloc(500001);
  memset(large, 'x', 500000);
  large[500000] = 0;
  same("set of a large value", memcached_set(client, S("large"), large, 500000, 0, 6) == MEMCACHED_SUCCESS, client);
  same("get of a large value", has(client, "large", large, 6), client);
  free(large);
  uint64_t number;
  memcached_set(client, S("n"), S("1"), 0, 0);
  same("increment", memcached_increment(client, S("n"), 2, &number) == MEMCACHED_SUCCESS && number == 3, client);
  same("version", memcached_version(client) == MEMCACHED_SUCCESS, client);
  memcached_free(client);
}

static void fails(const char *server, const char *options)
{
  char text[1000];
  snprintf(text, sizeof text, "--SERVER=%s %s", server, options);
  memcached_st *client = memcached(text, strlen(text));
  if (client) {
    same(text, memcached_failed(memcached_set(client, S("tls"), S("x"), 0, 0)), client);
    memcached_free(client);
  } else {
    checks++;
  }
}

int main(int argc, char **argv)
{
  if (argc < 3) {
    return 2;
  }
  topic = "tls";
  char options[600];
  for (int binary = 0; binary < 2; binary++) {
    snprintf(options, sizeof options, "--TLS-CA=\"%s\"", argv[2]);
    speaks(argv[1], options, binary);
    speaks(argv[1], "--TLS-INSECURE", binary);
    snprintf(options, sizeof options, "--TLS-CA=\"%s\" --TLS-NAME=localhost", argv[2]);
    speaks(argv[1], options, binary);
  }
  snprintf(options, sizeof options, "--TLS-CA=\"%s\" --TLS-NAME=other.example", argv[2]);
  fails(argv[1], options);
  fails(argv[1], "--TLS");
  fails(argv[1], "");
  fails(argv[1], "--TLS-CA=/tmp/no/such/file");
  snprintf(options, sizeof options, "--SERVER=%s --TLS-CA=\"%s\" --POOL-MIN=1 --POOL-MAX=3", argv[1], argv[2]);
  memcached_pool_st *pool = memcached_pool(options, strlen(options));
  same("a pool", pool != NULL, NULL);
  memcached_return_t rc;
  memcached_st *client = memcached_pool_pop(pool, true, &rc);
  same("get from a pool", client && has(client, "tls", "secret", 5), client);
  memcached_pool_push(pool, client);
  memcached_pool_destroy(pool);
  say("%d checks", checks);
  return 0;
}

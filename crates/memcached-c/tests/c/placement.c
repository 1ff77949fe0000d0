/* Keys are placed on servers, which nobody asks: placement. */
#include "transcript.h"
#include <time.h>

static const memcached_server_distribution_t distributions[] = {
  MEMCACHED_DISTRIBUTION_MODULA,
  MEMCACHED_DISTRIBUTION_CONSISTENT,
  MEMCACHED_DISTRIBUTION_CONSISTENT_KETAMA,
  MEMCACHED_DISTRIBUTION_CONSISTENT_KETAMA_SPY,
  MEMCACHED_DISTRIBUTION_CONSISTENT_WEIGHTED,
};

static void place(memcached_st *client, const char *what)
{
  char line[101];
  for (int i = 0; i < 100; i++) {
    char key[40];
    int length = sprintf(key, "%d:key/%d", i * 7919, i);
    memcached_return_t rc;
    const memcached_instance_st *server = memcached_server_by_key(client, key, (size_t) length, &rc);
    // The last digit of the port names the server.
    line[i] = server ? (char) ('0' + memcached_server_port(server) % 10) : '-';
  }
  line[100] = 0;
  say("%s %s", what, line);
}

static void add_five(memcached_st *client, const uint32_t *weights)
{
  for (in_port_t i = 0; i < 5; i++) {
    char host[20];
    sprintf(host, "10.0.%d.%d", i * 50, i + 1);
    memcached_server_add_with_weight(client, host, (in_port_t) (i == 3 ? 11211 : 12000 + i), weights[i]);
  }
}

static void all(const uint32_t *weights, const char *weighing)
{
  for (size_t d = 0; d < sizeof distributions / sizeof *distributions; d++) {
    for (int hash = 0; hash < MEMCACHED_HASH_MAX; hash++) {
      char what[200];
      memcached_st *client = memcached_create(NULL);
      memcached_return_t rc[3];
      rc[0] = memcached_behavior_set(client, MEMCACHED_BEHAVIOR_DISTRIBUTION, distributions[d]);
      rc[1] = memcached_behavior_set(client, MEMCACHED_BEHAVIOR_HASH, (uint64_t) hash);
      add_five(client, weights);
      const char *name = libmemcached_string_hash((memcached_hash_t) hash);
      sprintf(what, "%s, %s, %s: %d %d", weighing, libmemcached_string_distribution(distributions[d]),
              hash == MEMCACHED_HASH_CUSTOM ? "custom" : name, rc[0], rc[1]);
      if (hash != MEMCACHED_HASH_CUSTOM) {
        place(client, what);
      }
      rc[2] = memcached_behavior_set(client, MEMCACHED_BEHAVIOR_KETAMA_HASH, (uint64_t) hash);
      memcached_behavior_set(client, MEMCACHED_BEHAVIOR_HASH, MEMCACHED_HASH_MD5);
      sprintf(what, "ring of %d: %d", hash, rc[2]);
      if (rc[2] == MEMCACHED_SUCCESS && hash != MEMCACHED_HASH_CUSTOM) {
        place(client, what);
      }
      memcached_free(client);
    }
  }
}

static void hashes(void)
{
  static const char *const keys[] = {"", "a", "hello", "a key that is longer than any block of these hashes, I hope"};
  for (int hash = 0; hash < MEMCACHED_HASH_MAX; hash++) {
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
      if (hash != MEMCACHED_HASH_CUSTOM) {
        say("%d of %zu: %u", hash, strlen(keys[i]), memcached_generate_hash_value(S(keys[i]), (memcached_hash_t) hash));
      }
    }
  }
}

static void shortcuts(const uint32_t *weights)
{
  static const memcached_behavior_t behaviors[] = {MEMCACHED_BEHAVIOR_KETAMA, MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED};
  for (size_t i = 0; i < 2; i++) {
    for (int first = 0; first < 2; first++) {
      memcached_st *client = memcached_create(NULL);
      if (first) {
        say("behavior: %d", memcached_behavior_set(client, behaviors[i], 1));
      }
      add_five(client, weights);
      if (!first) {
        say("behavior: %d", memcached_behavior_set(client, behaviors[i], 1));
      }
      place(client, libmemcached_string_behavior(behaviors[i]));
      say("distribution %d, hash %d, ring's %d, weighted %d, ketama %d", memcached_behavior_get_distribution(client),
          memcached_behavior_get_key_hash(client), memcached_behavior_get_distribution_hash(client),
          (int) memcached_behavior_get(client, MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED),
          (int) memcached_behavior_get(client, MEMCACHED_BEHAVIOR_KETAMA));
      say("off: %d", memcached_behavior_set(client, behaviors[i], 0));
      place(client, "off");
      memcached_free(client);
    }
  }
}

static void changes(const uint32_t *weights)
{
  memcached_st *client = memcached_create(NULL);
  memcached_return_t rc;
  const memcached_instance_st *server = memcached_server_by_key(client, S("key"), &rc);
  say("of none: %s, %d", server ? "some" : "none", rc);
  add_five(client, weights);
  for (int i = 0; i < 20; i++) {
    char key[20];
    int length = sprintf(key, "index%d", i);
    say("index of %s: %u", key, memcached_generate_hash(client, key, (size_t) length));
  }
  memcached_callback_set(client, MEMCACHED_CALLBACK_PREFIX_KEY, "prefix:");
  place(client, "with a prefix");
  say("hash with it: %d", memcached_behavior_set(client, MEMCACHED_BEHAVIOR_HASH_WITH_PREFIX_KEY, 1));
  place(client, "with a prefix that counts");
  memcached_callback_set(client, MEMCACHED_CALLBACK_PREFIX_KEY, NULL);
  say("sort: %d", memcached_behavior_set(client, MEMCACHED_BEHAVIOR_SORT_HOSTS, 1));
  memcached_server_add(client, "10.0.0.0", 12006);
  place(client, "sorted");
  for (uint32_t i = 0; i < memcached_server_count(client); i++) {
    const memcached_instance_st *at = memcached_server_instance_by_position(client, i);
    say("%s:%d", memcached_server_name(at), memcached_server_port(at));
  }
  memcached_st *copy = memcached_clone(NULL, client);
  place(copy, "of a clone");
  memcached_servers_reset(client);
  place(client, "of none");
  memcached_free(copy);
  memcached_free(client);

  client = memcached_create(NULL);
  static const uint32_t hosts[] = {4, 3, 2, 1, 0, 4, 3, 2, 1, 0};
  add_five(client, weights);
  say("buckets: %d", memcached_bucket_set(client, hosts, NULL, 10, 2));
  say("distribution: %d",
      memcached_behavior_set_distribution(client, MEMCACHED_DISTRIBUTION_VIRTUAL_BUCKET));
  say("buckets: %d", memcached_bucket_set(client, hosts, NULL, 10, 2));
  place(client, "buckets");
  memcached_free(client);
}

/* A program ejects a server itself, as libmemcached's own tests do, and lets it return. */
static void ejected(const uint32_t *weights)
{
  memcached_st *client = memcached_create(NULL);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED, 1);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_AUTO_EJECT_HOSTS, 1);
  add_five(client, weights);
  place(client, "before");
  memcached_instance_next_retry(memcached_server_instance_by_position(client, 2), time(NULL) + 1000);
  client->ketama.next_distribution_rebuild = time(NULL) - 1;
  memcached_autoeject(client);
  place(client, "ejected");
  memcached_instance_next_retry(memcached_server_instance_by_position(client, 2), time(NULL) - 1);
  client->ketama.next_distribution_rebuild = time(NULL) - 1;
  memcached_autoeject(client);
  place(client, "after");
  memcached_free(client);
}

int main(void)
{
  static const uint32_t equal[] = {1, 1, 1, 1, 1};
  static const uint32_t unequal[] = {1, 2, 3, 8, 1};
  topic = "placement";
  hashes();
  all(equal, "equal");
  all(unequal, "unequal");
  shortcuts(equal);
  shortcuts(unequal);
  changes(equal);
  ejected(equal);
  return 0;
}

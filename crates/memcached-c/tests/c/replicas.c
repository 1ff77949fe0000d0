/* Values are kept on several servers: replicas SERVER SERVER SERVER... */
#include "transcript.h"

/* Which servers have a key, by their place. */
static void where(char **servers, const char *key)
{
  char found[20] = "";
  for (int i = 0; servers[i]; i++) {
    char *one[] = {servers[i], NULL};
    memcached_st *client = client_of(one, true);
    found[i] = memcached_exist(client, S(key)) == MEMCACHED_SUCCESS ? '#' : '.';
    found[i + 1] = 0;
    memcached_free(client);
  }
  say("%s is at %s", key, found);
}

/* Sends copies that still wait, and sees every server answer what came after them. */
static void arrive(memcached_st *client)
{
  memcached_flush_buffers(client);
  memcached_stat_free(client, memcached_stat(client, NULL, NULL));
}

static void with_replicas(char **servers, uint64_t replicas, bool binary)
{
  memcached_st *client = fresh_client_of(servers, binary);
  told(client, "replicas", memcached_behavior_set(client, MEMCACHED_BEHAVIOR_NUMBER_OF_REPLICAS, replicas));
  say("%" PRIu64, memcached_behavior_get(client, MEMCACHED_BEHAVIOR_NUMBER_OF_REPLICAS));
  for (int i = 0; i < 12; i++) {
    char key[20];
    int length = sprintf(key, "key%d", i);
    memcached_return_t rc = memcached_set(client, key, (size_t) length, S(key), 0, (uint32_t) i);
    say("set %d", rc);
  }
  arrive(client);
  for (int i = 0; i < 12; i++) {
    char key[20];
    sprintf(key, "key%d", i);
    where(servers, key);
  }
  got(client, "key1");
  told(client, "append", memcached_append(client, S("key1"), S(">"), 0, 0));
  got(client, "key1");
  told(client, "delete", memcached_delete(client, S("key2"), 0));
  arrive(client);
  where(servers, "key2");
  // One of the servers loses what it had.
  for (int i = 0; servers[i]; i++) {
    char *one[] = {servers[i], NULL};
    memcached_st *lost = fresh_client_of(one, true);
    memcached_free(lost);
    int hits = 0;
    for (int k = 3; k < 12; k++) {
      char key[20];
      int length = sprintf(key, "key%d", k);
      size_t value_length;
      uint32_t flags;
      memcached_return_t rc;
      char *value = memcached_get(client, key, (size_t) length, &value_length, &flags, &rc);
      hits += value != NULL;
      free(value);
    }
    say("hits after the loss of %d: %d", i, hits);
  }
  memcached_free(client);
}

int main(int argc, char **argv)
{
  (void) argc;
  for (uint64_t replicas = 0; replicas < 4; replicas++) {
    topic = "binary";
    with_replicas(argv + 1, replicas, true);
  }
  topic = "text";
  with_replicas(argv + 1, 2, false);
  topic = "random";
  memcached_st *client = fresh_client_of(argv + 1, true);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_NUMBER_OF_REPLICAS, 2);
  say("%d", memcached_behavior_set(client, MEMCACHED_BEHAVIOR_RANDOMIZE_REPLICA_READ, 1));
  memcached_set(client, S("a"), S("x"), 0, 0);
  for (int i = 0; i < 10; i++) {
    got(client, "a");
  }
  memcached_free(client);
  return 0;
}

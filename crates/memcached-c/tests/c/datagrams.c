/* Fires and forgets over UDP: datagrams SERVER, which takes both kinds at one port. */
#include "transcript.h"
#include <unistd.h>

static memcached_st *udp_client(const char *server, bool binary)
{
  memcached_st *client = memcached_create(NULL);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_BINARY_PROTOCOL, binary);
  told(client, "use UDP", memcached_behavior_set(client, MEMCACHED_BEHAVIOR_USE_UDP, 1));
  told(client, "add", add_server(client, server));
  return client;
}

/* Waits until another connection sees a value, for a datagram is not answered. */
static void arrives(memcached_st *tcp, const char *key, const char *want)
{
  for (int i = 0; i < 3000; i++) {
    size_t length = 0;
    uint32_t flags = 0;
    memcached_return_t rc;
    char *value = memcached_get(tcp, S(key), &length, &flags, &rc);
    bool is_there = value ? want && length == strlen(want) && memcmp(value, want, length) == 0 : want == NULL;
    free(value);
    if (is_there) {
      say("%.10s arrived, flags %u", want ? want : "its end", flags);
      return;
    }
    usleep(10000);
  }
  say("%.10s did not arrive", want ? want : "its end");
}

static void storage(memcached_st *udp, memcached_st *tcp)
{
  told(udp, "set", memcached_set(udp, S("a"), S("set"), 0, 7));
  arrives(tcp, "a", "set");
  told(udp, "replace", memcached_replace(udp, S("a"), S("replaced"), 0, 8));
  arrives(tcp, "a", "replaced");
  told(udp, "append", memcached_append(udp, S("a"), S(">"), 0, 0));
  arrives(tcp, "a", "replaced>");
  told(udp, "prepend", memcached_prepend(udp, S("a"), S("<"), 0, 0));
  arrives(tcp, "a", "<replaced>");
  told(udp, "delete", memcached_delete(udp, S("a"), 0));
  arrives(tcp, "a", NULL);
  told(udp, "add", memcached_add(udp, S("a"), S("1"), 0, 0));
  arrives(tcp, "a", "1");
  uint64_t number = 77;
  told(udp, "increment", memcached_increment(udp, S("a"), 4, &number));
  arrives(tcp, "a", "5");
  told(udp, "decrement", memcached_decrement(udp, S("a"), 1, &number));
  arrives(tcp, "a", "4");
  told(udp, "set_by_key", memcached_set_by_key(udp, S("g"), S("a"), S("by key"), 0, 0));
  arrives(tcp, "a", "by key");
  told(udp, "flush", memcached_flush(udp, 0));
  arrives(tcp, "a", NULL);
}

static void without_answers(memcached_st *udp)
{
  got(udp, "a");
  memcached_return_t rc;
  size_t length;
  uint32_t flags;
  char *value = memcached_get_by_key(udp, S("g"), S("a"), &length, &flags, &rc);
  told(udp, value ? "a value" : "get_by_key", rc);
  const char *keys[] = {"a"};
  size_t lengths[] = {1};
  told(udp, "mget", memcached_mget(udp, keys, lengths, 1));
  told(udp, "mget_by_key", memcached_mget_by_key(udp, S("g"), keys, lengths, 1));
  char key[MEMCACHED_MAX_KEY];
  size_t key_length;
  value = memcached_fetch(udp, key, &key_length, &length, &flags, &rc);
  told(udp, value ? "a value" : "fetch", rc);
  memcached_result_st *result = memcached_fetch_result(udp, NULL, &rc);
  told(udp, result ? "a result" : "fetch_result", rc);
  told(udp, "version", memcached_version(udp));
  memcached_stat_st *stats = memcached_stat(udp, NULL, &rc);
  told(udp, stats ? "statistics" : "stat", rc);
  memcached_stat_free(udp, stats);
  say("touch: %d", memcached_touch(udp, S("a"), 1));
  told(udp, "exist", memcached_exist(udp, S("a")));
}

/* What fits into a datagram. */
static void large(memcached_st *udp, memcached_st *tcp)
{
  char value[1301];
  memset(value, 'v', sizeof value);
  static const size_t sizes[] = {1024, 1300};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    char key[20];
    sprintf(key, "large%zu", sizes[i]);
    value[sizes[i]] = 0;
    told(udp, key, memcached_set(udp, S(key), S(value), 0, 0));
    arrives(tcp, key, value);
    value[sizes[i]] = 'v';
  }
}

static void mixing(memcached_st *udp, const char *server)
{
  say("servers %u", memcached_server_count(udp));
  told(udp, "UDP off", memcached_behavior_set(udp, MEMCACHED_BEHAVIOR_USE_UDP, 0));
  memcached_st *tcp = memcached_create(NULL);
  add_server(tcp, server);
  told(tcp, "UDP on", memcached_behavior_set(tcp, MEMCACHED_BEHAVIOR_USE_UDP, 1));
  say("servers %u", memcached_server_count(tcp));
  memcached_free(tcp);
}

/* A server is not there: the system says so after the first datagram, and the server is left alone then. */
static void to_nobody(const char *server, bool binary)
{
  memcached_st *udp = memcached_create(NULL);
  memcached_behavior_set(udp, MEMCACHED_BEHAVIOR_USE_UDP, 1);
  memcached_behavior_set(udp, MEMCACHED_BEHAVIOR_BINARY_PROTOCOL, binary);
  memcached_behavior_set(udp, MEMCACHED_BEHAVIOR_RETRY_TIMEOUT, 1000);
  memcached_server_add(udp, "127.0.0.1", 1);
  add_server(udp, server);
  for (int i = 0; i < 24; i++) {
    // Its time is up, and then it is left alone again.
    if (i == 16) {
      memcached_instance_next_retry(memcached_server_instance_by_position(udp, 0), 1);
    }
    char key[20];
    sprintf(key, "key%d", i % 8);
    say("set of %s: %d", key, memcached_set(udp, S(key), S("x"), 0, 0));
  }
  memcached_free(udp);
}

int main(int argc, char **argv)
{
  (void) argc;
  char *one[] = {argv[1], NULL};
  for (int binary = 0; binary < 2; binary++) {
    topic = protocols[binary];
    memcached_st *tcp = fresh_client_of(one, false);
    memcached_st *udp = udp_client(argv[1], binary);
    storage(udp, tcp);
    without_answers(udp);
    large(udp, tcp);
    mixing(udp, argv[1]);
    to_nobody(argv[1], binary);
    memcached_free(udp);
    memcached_free(tcp);
  }
  return 0;
}

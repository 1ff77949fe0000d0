/* Servers are away, for a while or for good: away SERVER... */
#include "transcript.h"
#include <time.h>
#include <unistd.h>

static void all_away(bool binary)
{
  memcached_st *client = memcached_create(NULL);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_BINARY_PROTOCOL, binary);
  memcached_server_add(client, "127.0.0.1", 1);
  told(client, "set", memcached_set(client, S("a"), S("x"), 0, 0));
  const memcached_instance_st *server = memcached_server_instance_by_position(client, 0);
  say("of the server: %d", memcached_server_error_return(server));
  const memcached_instance_st *last = memcached_server_get_last_disconnect(client);
  say("last disconnect: %d", last ? memcached_server_port(last) : -1);
  told(client, "set again", memcached_set(client, S("a"), S("x"), 0, 0));
  got(client, "a");
  told(client, "delete", memcached_delete(client, S("a"), 0));
  told(client, "increment", memcached_increment(client, S("a"), 1, NULL));
  told(client, "touch", memcached_touch(client, S("a"), 1));
  told(client, "exist", memcached_exist(client, S("a")));
  told(client, "flush", memcached_flush(client, 0));
  told(client, "version", memcached_version(client));
  const char *keys[] = {"a"};
  size_t lengths[] = {1};
  told(client, "mget", memcached_mget(client, keys, lengths, 1));
  memcached_return_t rc;
  memcached_result_st *result = memcached_fetch_result(client, NULL, &rc);
  told(client, result ? "a result" : "no result", rc);
  memcached_stat_st *stats = memcached_stat(client, NULL, &rc);
  told(client, stats ? "stats" : "no stats", rc);
  memcached_stat_free(client, stats);
  memcached_free(client);
}

static void buffered(void)
{
  memcached_st *client = memcached_create(NULL);
  memcached_server_add(client, "127.0.0.1", 1);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_BUFFER_REQUESTS, 1);
  told(client, "buffered", memcached_set(client, S("a"), S("x"), 0, 0));
  told(client, "flush_buffers", memcached_flush_buffers(client));
  memcached_free(client);
  client = memcached_create(NULL);
  memcached_server_add(client, "127.0.0.1", 1);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_NO_BLOCK, 1);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_CONNECT_TIMEOUT, 100);
  told(client, "without blocking", memcached_set(client, S("a"), S("x"), 0, 0));
  memcached_free(client);
  client = memcached_create(NULL);
  memcached_server_add_unix_socket(client, "/tmp/no/such/socket");
  told(client, "a socket that is not there", memcached_set(client, S("a"), S("x"), 0, 0));
  got(client, "a");
  memcached_free(client);
}

static void some_away(char **servers, bool binary)
{
  memcached_st *client = fresh_client_of(servers, binary);
  memcached_server_add(client, "127.0.0.1", 1);
  int codes[MEMCACHED_MAXIMUM_RETURN] = {0};
  for (int i = 0; i < 60; i++) {
    char key[20];
    int length = sprintf(key, "key%d", i);
    codes[memcached_set(client, key, (size_t) length, S("x"), 0, 0)]++;
  }
  for (int code = 0; code < MEMCACHED_MAXIMUM_RETURN; code++) {
    if (codes[code]) {
      say("%d times %d", codes[code], code);
    }
  }
  char names[60][20];
  const char *keys[60];
  size_t lengths[60];
  for (int i = 0; i < 60; i++) {
    lengths[i] = (size_t) sprintf(names[i], "key%d", i);
    keys[i] = names[i];
  }
  memcached_return_t asked = memcached_mget(client, keys, lengths, 60);
  // In the binary protocol libmemcached's result is that of the server that it connected to last.
  if (!memcached_behavior_get(client, MEMCACHED_BEHAVIOR_BINARY_PROTOCOL)) {
    say("mget fails: %d", memcached_failed(asked));
  }
  memcached_return_t rc;
  memcached_result_st *result;
  int count = 0;
  while ((result = memcached_fetch_result(client, NULL, &rc)) != NULL) {
    count++;
    memcached_result_free(result);
  }
  say("%d results, %d", count, rc);
  told(client, "flush", memcached_flush(client, 0));
  told(client, "version", memcached_version(client));
  memcached_free(client);
}

static void ejected(char **servers, int limit, const memcached_behavior_t behavior)
{
  memcached_st *client = fresh_client_of(servers, false);
  memcached_server_add(client, "127.0.0.1", 1);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_DISTRIBUTION, MEMCACHED_DISTRIBUTION_CONSISTENT);
  say("%s: %d", libmemcached_string_behavior(behavior), memcached_behavior_set(client, behavior, 1));
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_SERVER_FAILURE_LIMIT, (uint64_t) limit);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_RETRY_TIMEOUT, 1);
  for (int round = 0; round < 5; round++) {
    int codes[MEMCACHED_MAXIMUM_RETURN] = {0};
    for (int i = 0; i < 60; i++) {
      char key[20];
      int length = sprintf(key, "key%d", i);
      codes[memcached_set(client, key, (size_t) length, S("x"), 0, 0)]++;
    }
    // Which failure comes first hangs on the clock; that keys are stored does not.
    say("round %d: all stored: %d", round, codes[MEMCACHED_SUCCESS] == 60);
    if (codes[MEMCACHED_SUCCESS] == 60) {
      break;
    }
    sleep(2);
  }
  say("servers %u", memcached_server_count(client));
  memcached_free(client);
}

static void back_again(char **servers)
{
  memcached_st *client = fresh_client_of(servers, false);
  const memcached_instance_st *server = memcached_server_instance_by_position(client, 0);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_RETRY_TIMEOUT, 1);
  told(client, "set", memcached_set(client, S("a"), S("x"), 0, 0));
  memcached_quit(client);
  memcached_instance_next_retry(server, time(NULL) + 100);
  told(client, "set of one that waits", memcached_set(client, S("a"), S("x"), 0, 0));
  memcached_instance_next_retry(server, 0);
  told(client, "set of one that does not", memcached_set(client, S("a"), S("x"), 0, 0));
  memcached_quit(client);
  got(client, "a");
  memcached_free(client);
}

int main(int argc, char **argv)
{
  (void) argc;
  char *one[] = {argv[1], NULL};
  for (int binary = 0; binary < 2; binary++) {
    topic = protocols[binary];
    all_away(binary);
    some_away(argv + 1, binary);
  }
  topic = "buffered";
  buffered();
  topic = "ejected";
  ejected(argv + 1, 1, MEMCACHED_BEHAVIOR_AUTO_EJECT_HOSTS);
  ejected(argv + 1, 2, MEMCACHED_BEHAVIOR_REMOVE_FAILED_SERVERS);
  topic = "back";
  back_again(one);
  return 0;
}

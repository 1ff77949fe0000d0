/* What servers and the library tell of themselves: information SERVER... */
#include "transcript.h"
#include <libmemcached/util.h>

static memcached_return_t count_stat(const memcached_instance_st *server, const char *key, size_t key_length,
                                     const char *value, size_t value_length, void *context)
{
  (void) server;
  (void) value;
  (void) value_length;
  if (key_length == 7 && memcmp(key, "version", 7) == 0) {
    say("one of them is the version");
  }
  ++*(int *) context;
  return MEMCACHED_SUCCESS;
}

static void statistics(memcached_st *client, const char *server)
{
  memcached_return_t rc;
  memcached_set(client, S("a"), S("x"), 0, 0);
  memcached_stat_st *stats = memcached_stat(client, NULL, &rc);
  told(client, "stat", rc);
  for (uint32_t i = 0; i < memcached_server_count(client); i++) {
    say("server %u: pid %d, pointers of %lu, version %d, threads %d", i, stats[i].pid > 0, stats[i].pointer_size,
        strlen(stats[i].version) > 0, stats[i].threads > 0);
  }
  char **keys = memcached_stat_get_keys(client, stats, &rc);
  for (char **key = keys; *key; key++) {
    char *value = memcached_stat_get_value(client, stats, *key, &rc);
    // Times and sums of traffic change; that there is a value does not.
    say("%s: %s, %d", *key, value && *value ? "some" : "none", rc);
    free(value);
  }
  char *value = memcached_stat_get_value(client, stats, "no such thing", &rc);
  say("no such thing: %s, %d", value ? value : "none", rc);
  free(keys);
  memcached_stat_free(client, stats);

  char settings[] = "settings";
  stats = memcached_stat(client, settings, &rc);
  told(client, "stat settings", rc);
  memcached_stat_free(client, stats);
  int count = 0;
  told(client, "stat_execute", memcached_stat_execute(client, NULL, count_stat, &count));
  say("more than ten: %d", count > 10);
  count = 0;
  told(client, "stat_execute settings", memcached_stat_execute(client, "settings", count_stat, &count));
  say("more than ten: %d", count > 10);

  memcached_stat_st one;
  char host[256];
  const char *colon = strrchr(server, ':');
  snprintf(host, sizeof host, "%.*s", (int) (colon - server), server);
  rc = memcached_stat_servername(&one, NULL, host, (in_port_t) atoi(colon + 1));
  say("stat_servername: %d, pid %d", rc, one.pid > 0);

  stats = memcached_stat(client, NULL, &rc);
  memcached_analysis_st *analysis = memcached_analyze(client, stats, &rc);
  say("analyze: %d, least free %u", rc, analysis ? analysis->least_free_server < 9 : 0);
  memcached_analyze_free(analysis);
  memcached_stat_free(client, stats);
}

static void versions(memcached_st *client)
{
  const memcached_instance_st *first = memcached_server_instance_by_position(client, 0);
  say("before: %d.%d.%d", memcached_server_major_version(first), memcached_server_minor_version(first),
      memcached_server_micro_version(first));
  told(client, "version", memcached_version(client));
  for (uint32_t i = 0; i < memcached_server_count(client); i++) {
    const memcached_instance_st *server = memcached_server_instance_by_position(client, i);
    say("%d.%d.%d", memcached_server_major_version(server), memcached_server_minor_version(server),
        memcached_server_micro_version(server));
  }
  say("version_check: %d %d", libmemcached_util_version_check(client, 1, 0, 0),
      libmemcached_util_version_check(client, 99, 0, 0));
  say("of the library: %s", memcached_lib_version());
}

static memcached_return_t see_server(const memcached_st *client, const memcached_instance_st *server, void *context)
{
  (void) client;
  ++*(int *) context;
  say("server %s:%d, %s, answers to come %u, last error %d, %s", memcached_server_name(server),
      memcached_server_port(server), memcached_server_type(server), memcached_server_response_count(server),
      memcached_server_error_return(server), message(memcached_server_error(server)));
  return MEMCACHED_SUCCESS;
}

static memcached_return_t see_key(const memcached_st *client, const char *key, size_t length, void *context)
{
  (void) client;
  (void) key;
  *(size_t *) context += length;
  return MEMCACHED_SUCCESS;
}

static void servers(memcached_st *client)
{
  int count = 0;
  memcached_server_fn callback = see_server;
  say("cursor: %d", memcached_server_cursor(client, &callback, &count, 1));
  say("%d of %u", count, memcached_server_count(client));
  const memcached_instance_st *first = memcached_server_instance_by_position(client, 0);
  say("a source port: %d", memcached_server_srcport(first) > 0);
  say("last disconnect: %d", memcached_server_get_last_disconnect(client) != NULL);
  told(client, "verbosity", memcached_verbosity(client, 0));
  uint64_t id = memcached_query_id(client);
  memcached_set(client, S("b"), S("x"), 0, 0);
  say("queries: %" PRIu64, memcached_query_id(client) - id);
  size_t bytes = 0;
  memcached_dump_fn dump = see_key;
  memcached_return_t rc = memcached_dump(client, &dump, &bytes, 1);
  // Which items the server shows is its affair.
  say("dump: %d, some: %d", rc, bytes > 0);
}

static void utilities(const char *server)
{
  const char *colon = strrchr(server, ':');
  char host[256];
  snprintf(host, sizeof host, "%.*s", (int) (colon - server), server);
  in_port_t port = (in_port_t) atoi(colon + 1);
  memcached_return_t rc = MEMCACHED_MAXIMUM_RETURN;
  say("ping: %d", libmemcached_util_ping(host, port, &rc));
  say("rc %d", rc);
  say("ping of nobody: %d", libmemcached_util_ping(host, 1, &rc));
  say("rc %d", rc);
  say("ping2: %d", libmemcached_util_ping2(host, port, NULL, NULL, &rc));
  say("pid: %d", libmemcached_util_getpid(host, port, &rc) > 0);
  say("rc %d", rc);
  say("pid of nobody: %d", libmemcached_util_getpid(host, 1, &rc));
  say("rc %d", rc);
  say("flush: %d", libmemcached_util_flush(host, port, &rc));
  say("rc %d", rc);
}

int main(int argc, char **argv)
{
  (void) argc;
  for (int binary = 0; binary < 2; binary++) {
    topic = protocols[binary];
    memcached_st *client = fresh_client_of(argv + 1, binary);
    memcached_set(client, S("a"), S("x"), 0, 0);
    versions(client);
    statistics(client, argv[1]);
    if (!binary) {
      servers(client);
    }
    memcached_free(client);
    utilities(argv[1]);
  }
  return 0;
}

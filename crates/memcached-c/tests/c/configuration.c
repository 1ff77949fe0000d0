/* Clients are configured with a string: configuration SERVER... */
#include "transcript.h"
#include <unistd.h>

static void show(memcached_st *client)
{
  for (uint32_t i = 0; i < memcached_server_count(client); i++) {
    const memcached_instance_st *server = memcached_server_instance_by_position(client, i);
    say("%s:%d %s", memcached_server_name(server), memcached_server_port(server), memcached_server_type(server));
  }
  for (int flag = 0; flag < MEMCACHED_BEHAVIOR_MAX; flag++) {
    // What the kernel tells of sockets is its own.
    if (flag != MEMCACHED_BEHAVIOR_SOCKET_SEND_SIZE && flag != MEMCACHED_BEHAVIOR_SOCKET_RECV_SIZE
        && flag != MEMCACHED_BEHAVIOR_LOAD_FROM_FILE) {
      printf(" %" PRIu64, memcached_behavior_get(client, (memcached_behavior_t) flag));
    }
  }
  memcached_return_t rc;
  char *prefix = memcached_callback_get(client, MEMCACHED_CALLBACK_PREFIX_KEY, &rc);
  printf(" %s\n", prefix ? prefix : "no prefix");
}

/* What the error says before it goes into the tokens of a parser. */
static void check(const char *text)
{
  char error[2048] = "";
  memcached_return_t rc = libmemcached_check_configuration(text, strlen(text), error, sizeof error);
  error[strcspn(error, "(")] = 0;
  say("%s: %d %s", text, rc, error);
  memcached_st *client = memcached(text, strlen(text));
  if (client) {
    show(client);
    memcached_free(client);
  } else {
    say("no client");
  }
}

static const char *const good[] = {
  "--SERVER=localhost",
  "--SERVER=localhost:11221",
  "--SERVER=localhost:11221/?3",
  "--SERVER=10.0.2.1 --SERVER=10.0.3.1:12",
  "--SERVER=a.b-c.example.com:5 --DISTRIBUTION=consistent --HASH=MD5",
  "--SOCKET=\"/tmp/a socket\"",
  "--SOCKET=\"/tmp/socket\"/?7",
  "--SERVER=localhost --NAMESPACE=app",
  "--SERVER=localhost --NAMESPACE=\"app:\"",
  "--SERVER=localhost --POOL-MIN=2 --POOL-MAX=10",
  "--SERVER=localhost --BINARY-PROTOCOL",
  "--SERVER=localhost --BINARY_PROTOCOL",
  "--SERVER=localhost --BUFFER-REQUESTS --TCP-NODELAY --TCP-KEEPALIVE --NOREPLY --SUPPORT-CAS --VERIFY-KEY",
  "--SERVER=localhost --CONNECT-TIMEOUT=456 --RCV-TIMEOUT=78 --SND-TIMEOUT=91 --POLL-TIMEOUT=10 --RETRY-TIMEOUT=3",
  "--SERVER=localhost --SERVER-FAILURE-LIMIT=4 --REMOVE-FAILED-SERVERS",
  "--SERVER=localhost --IO-MSG-WATERMARK=5 --IO-BYTES-WATERMARK=6 --IO-KEY-PREFETCH=7",
  "--SERVER=localhost --NUMBER-OF-REPLICAS=2 --RANDOMIZE-REPLICA-READ",
  "--SERVER=localhost --SORT-HOSTS --SERVER=0",
  "--SERVER=localhost --HASH-WITH-NAMESPACE",
  "--SERVER=localhost --USE-UDP",
  "--USE-UDP --SERVER=localhost",
  "--SERVER=localhost --HASH=CRC",
  "--SERVER=localhost --HASH=FNV1_64",
  "--SERVER=localhost --HASH=FNV1A_32",
  "--SERVER=localhost --HASH=JENKINS",
  "--SERVER=localhost --HASH=MURMUR",
  "--SERVER=localhost --DISTRIBUTION=modula",
  "--SERVER=localhost --DISTRIBUTION=consistent,MD5",
  "--SERVER=localhost --DISTRIBUTION=random",
  "--SERVER=localhost --DISTRIBUTION=virtual_bucket",
  "--SERVER=localhost --KETAMA --USER-DATA",
  "--SERVER=localhost --TCP-KEEPIDLE --SOCKET-RECV-SIZE=4096",
  "--SERVER=localhost --RESET --SERVER=127.0.0.1",
  "--SERVER=localhost --END --SERVER=127.0.0.1",
  "--SERVER=localhost # a remark",
  "--SERVER=localhost --ERROR",
  "   --SERVER=localhost   ",
};

static const char *const bad[] = {
  "",
  " ",
  "localhost",
  "--SERVER",
  "--SERVER=",
  "--SERVER=localhost:port",
  "--SERVER=localhost:",
  "--SERVER=localhost --UNKNOWN",
  "--SERVER=localhost --HASH=NONE",
  "--SERVER=localhost --DISTRIBUTION=none",
  "--SERVER=localhost --CONNECT-TIMEOUT",
  "--SERVER=localhost --CONNECT-TIMEOUT=soon",
  "--SERVER=localhost --NAMESPACE",
  "--server=a",
  "-SERVER=localhost",
  "--SERVER=localhost --POOL-MIN=many",
  "--SERVER=localhost --CONFIGURE-FILE",
  "--SERVER=localhost --CONFIGURE-FILE=\"/tmp/no/such/file\"",
  "--SERVER=localhost --INCLUDE=\"/tmp/no/such/file\"",
  "--SERVER=localhost b",
  "--SOCKET=tmp",
};

int main(int argc, char **argv)
{
  (void) argc;
  topic = "good";
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    check(good[i]);
  }
  topic = "bad";
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    check(bad[i]);
  }

  topic = "used";
  for (int binary = 0; binary < 2; binary++) {
    char text[1024];
    snprintf(text, sizeof text, "--SERVER=%s --NAMESPACE=\"conf%d:\" %s", argv[1], binary,
             binary ? "--BINARY-PROTOCOL" : "--TCP-NODELAY");
    memcached_st *client = memcached(text, strlen(text));
    told(client, "set", memcached_set(client, S("a"), S("configured"), 0, 5));
    got(client, "a");
    memcached_free(client);
  }
  topic = "file";
  char path[] = "/tmp/configuration-XXXXXX";
  FILE *file = fdopen(mkstemp(path), "w");
  fputs("--SERVER=from.a.file:77 --BINARY-PROTOCOL\n", file);
  fclose(file);
  char text[100];
  sprintf(text, "--CONFIGURE-FILE=\"%s\"", path);
  memcached_st *client = memcached(text, strlen(text));
  say("read: %d", client != NULL);
  if (client) {
    show(client);
    memcached_free(client);
  }
  unlink(path);
  return 0;
}

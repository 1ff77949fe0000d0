/* Speaks TLS, which libmemcached cannot: tls SERVER CA_FILE. It knows what is right. */
#include "transcript.h"
#include <arpa/inet.h>
#include <libmemcached/util.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

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

/* The options of all lines of a file count together. */
static void speaks_by_file(const char *server, const char *authority)
{
  char path[] = "/tmp/larder-tls-XXXXXX", text[1000];
  int file = mkstemp(path);
  dprintf(file, "--SERVER=%s\n--TLS-CA=\"%s\"\n--TLS-NAME=localhost\n", server, authority);
  close(file);
  snprintf(text, sizeof text, "--CONFIGURE-FILE=\"%s\"", path);
  memcached_st *client = memcached(text, strlen(text));
  unlink(path);
  same(text, client != NULL, client);
  same("get by a file", has(client, "tls", "secret", 5), client);
  memcached_free(client);
}

/* Datagrams are not encrypted: none is sent in place of TLS. */
static void sends_no_datagram(const char *server)
{
  char text[1000];
  snprintf(text, sizeof text, "--SERVER=%s --TLS-INSECURE --USE-UDP", server);
  memcached_st *client = memcached(text, strlen(text));
  same(text, client != NULL, client);
  memcached_return_t rc = memcached_set(client, S("tls"), S("in plain"), 0, 0);
  same("a datagram: the error", rc == MEMCACHED_INVALID_HOST_PROTOCOL, client);
  memcached_free(client);
}

/* Between a client and a server. */
struct proxy {
  struct sockaddr_in server;
  int listener;
  /* What the server says is passed on byte by byte. */
  volatile bool is_slow;
  volatile size_t passed_slowly;
};

static void *pass(void *context)
{
  struct proxy *proxy = context;
  struct pollfd ends[2] = {{.fd = accept(proxy->listener, NULL, NULL), .events = POLLIN},
                           {.fd = socket(AF_INET, SOCK_STREAM, 0), .events = POLLIN}};
  connect(ends[1].fd, (struct sockaddr *) &proxy->server, sizeof proxy->server);
  for (;;) {
    poll(ends, 2, -1);
    for (int from = 0; from < 2; from++) {
      static char bytes[4096];
      if (ends[from].revents == 0) {
        continue;
      }
      bool is_slow = from == 1 && proxy->is_slow;
      ssize_t got = recv(ends[from].fd, bytes, is_slow ? 1 : sizeof bytes, 0);
      if (got <= 0 || send(ends[!from].fd, bytes, (size_t) got, MSG_NOSIGNAL) != got) {
        close(ends[0].fd);
        close(ends[1].fd);
        return NULL;
      }
      if (is_slow) {
        proxy->passed_slowly++;
        usleep(5000);
      }
    }
  }
}

/* A record of which a byte comes now and then: a minute of it. */
static void slow_records(const char *server, const char *options)
{
  static struct proxy proxy;
  socklen_t length = sizeof proxy.server;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  proxy.server = address;
  proxy.server.sin_port = htons((in_port_t) atoi(strrchr(server, ':') + 1));
  proxy.listener = socket(AF_INET, SOCK_STREAM, 0);
  bind(proxy.listener, (struct sockaddr *) &address, length);
  listen(proxy.listener, 1);
  getsockname(proxy.listener, (struct sockaddr *) &address, &length);
  pthread_t thread;
  pthread_create(&thread, NULL, pass, &proxy);
  char text[1000];
  snprintf(text, sizeof text, "--SERVER=127.0.0.1:%d %s --TLS-NAME=localhost", ntohs(address.sin_port), options);
  memcached_st *client = memcached(text, strlen(text));
  same(text, client != NULL, client);
  static char value[12000];
  same("set", memcached_set(client, S("slow"), value, sizeof value, 0, 0) == MEMCACHED_SUCCESS, client);
  proxy.is_slow = true;
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_POLL_TIMEOUT, 1000);
  size_t value_length;
  uint32_t flags;
  memcached_return_t rc;
  free(memcached_get(client, S("slow"), &value_length, &flags, &rc));
  same("a slow record: the error", rc == MEMCACHED_TIMEOUT, client);
  same("a slow record: the client has waited for all", proxy.passed_slowly < sizeof value, client);
  memcached_free(client);
  pthread_join(thread, NULL);
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
  snprintf(options, sizeof options, "--TLS-CA=\"%s\"", argv[2]);
  speaks_by_file(argv[1], argv[2]);
  slow_records(argv[1], options);
  sends_no_datagram(argv[1]);
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

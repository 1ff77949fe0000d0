/* A server answers what it should not, or not at all: faults. It needs no servers, for it is one. */
#include "transcript.h"
#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

static int listener;
static const char *answer;
static size_t answer_length;

/* Answers each connection's first request, and ends the connection. */
static void *serve(void *unused)
{
  (void) unused;
  for (;;) {
    int peer = accept(listener, NULL, NULL);
    char request[65536];
    if (recv(peer, request, sizeof request, 0) > 0 && answer != NULL) {
      send(peer, answer, answer_length, MSG_NOSIGNAL);
    }
    if (answer != NULL) {
      shutdown(peer, SHUT_WR);
      while (recv(peer, request, sizeof request, 0) > 0) {
      }
      close(peer);
    }
  }
  return NULL;
}

static in_port_t listen_somewhere(void)
{
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  listener = socket(AF_INET, SOCK_STREAM, 0);
  bind(listener, (struct sockaddr *) &address, length);
  listen(listener, 100);
  getsockname(listener, (struct sockaddr *) &address, &length);
  return ntohs(address.sin_port);
}

/* What is answered may be answered late, on a busy machine; for the rest a client waits in vain. */
enum { ANSWERED_MS = 60000, UNANSWERED_MS = 300 };

static memcached_st *client_at(in_port_t port, bool binary, int timeout_ms)
{
  memcached_st *client = memcached_create(NULL);
  memcached_server_add(client, "127.0.0.1", port);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_BINARY_PROTOCOL, binary);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_POLL_TIMEOUT, timeout_ms);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_RETRY_TIMEOUT, 0);
  return client;
}

struct fault {
  const char *text;
  size_t length;
};
#define FAULT(text) {text, sizeof text - 1}

static const struct fault to_get[] = {
  FAULT("END\r\n"),
  FAULT("VALUE a 1 5\r\nhello\r\nEND\r\n"),
};

static const struct fault to_set[] = {
  FAULT("STORED\r\n"),
  FAULT("NOT_STORED\r\n"),
  FAULT("ERROR\r\n"),
  FAULT("CLIENT_ERROR bad data chunk\r\n"),
  FAULT("SERVER_ERROR out of memory storing object\r\n"),
  FAULT("SERVER_ERROR object too large for cache\r\n"),
};

/* What cannot be understood, or ends too soon: libraries may call it what they like, as long as it is a failure. */
static const struct fault broken[] = {
  FAULT(""),
  FAULT("garbage\r\n"),
  FAULT("VALUE"),
  FAULT("VALUE a 1 5\r\nhel"),
  FAULT("VALUE a 1 99999999999999999999\r\nhello\r\nEND\r\n"),
  FAULT("\x81\x00\x00\x00\x04\x00\x00\x00\xff\xff\xff\xff"),
  FAULT("\x80\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"),
};

#define COUNT(faults) (sizeof faults / sizeof *faults)

static void set_answer(const struct fault *fault)
{
  answer = fault->text;
  answer_length = fault->length;
}

int main(void)
{
  hides_hosts = true;
  in_port_t port = listen_somewhere();
  pthread_t thread;
  pthread_create(&thread, NULL, serve, NULL);

  topic = "get";
  for (size_t i = 0; i < COUNT(to_get); i++) {
    set_answer(to_get + i);
    say("%s", shown(answer, answer_length));
    memcached_st *client = client_at(port, false, ANSWERED_MS);
    got(client, "a");
    memcached_free(client);
  }
  topic = "set";
  for (size_t i = 0; i < COUNT(to_set); i++) {
    set_answer(to_set + i);
    memcached_st *client = client_at(port, false, ANSWERED_MS);
    told(client, shown(answer, answer_length), memcached_set(client, S("a"), S("x"), 0, 0));
    memcached_free(client);
  }
  for (int binary = 0; binary < 2; binary++) {
    topic = protocols[binary];
    for (size_t i = 0; i < COUNT(broken); i++) {
      set_answer(broken + i);
      memcached_st *client = client_at(port, binary, UNANSWERED_MS);
      size_t length;
      uint32_t flags;
      memcached_return_t rc[2];
      char *value = memcached_get(client, S("a"), &length, &flags, rc);
      say("%s, get: no value %d, failed %d", shown(answer, answer_length), value == NULL, memcached_failed(rc[0]));
      free(value);
      rc[1] = memcached_set(client, S("a"), S("x"), 0, 0);
      say("set: failed %d", memcached_failed(rc[1]));
      memcached_free(client);
    }
    answer = NULL;
    memcached_st *client = client_at(port, binary, UNANSWERED_MS);
    told(client, "set that is not answered", memcached_set(client, S("a"), S("x"), 0, 0));
    memcached_free(client);
    client = client_at(port, binary, UNANSWERED_MS);
    got(client, "unanswered");
    memcached_free(client);
    client = client_at(port, binary, UNANSWERED_MS);
    memcached_behavior_set(client, MEMCACHED_BEHAVIOR_POLL_TIMEOUT, 10000);
    memcached_behavior_set(client, MEMCACHED_BEHAVIOR_RCV_TIMEOUT, 300000);
    told(client, "set with a limit for receiving", memcached_set(client, S("a"), S("x"), 0, 0));
    memcached_free(client);
  }
  return 0;
}

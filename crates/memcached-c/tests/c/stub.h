/* Servers that do what no server should, and what programs that know what is right share. */
#ifndef STUB_H
#define STUB_H

#include "transcript.h"
#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int failures;
static void expect(bool is_right, const char *what)
{
  if (!is_right) {
    printf("wrong: %s\n", what);
    failures++;
  }
}

/* A server that answers every request with the head, perhaps late, and then with the same again and again. */
struct endless {
  useconds_t delay_micros;
  const char *head;
  size_t head_bytes;
  const char *part;
  size_t part_bytes;
  useconds_t pause_micros;
  size_t most;
  /* Clients that it has accepted. */
  volatile size_t clients;
  /* What it has sent of it to the last client. */
  volatile size_t sent;
  int listener;
};

static void *serve(void *context)
{
  struct endless *server = context;
  /* When the last client is gone, it may be as well. */
  int listener = server->listener;
  char request[4096];
  for (;;) {
    int peer = accept(listener, NULL, NULL);
    server->sent = 0;
    server->clients++;
    ssize_t bytes = recv(peer, request, sizeof request, 0);
    if (bytes > 7 && memcmp(request, "version", 7) == 0) {
      send(peer, S("VERSION 1.6.18\r\n"), MSG_NOSIGNAL);
      bytes = recv(peer, request, sizeof request, 0);
    }
    usleep(server->delay_micros);
    if (bytes > 0
        && send(peer, server->head, server->head_bytes, MSG_NOSIGNAL) == (ssize_t) server->head_bytes) {
      while (server->sent < server->most && send(peer, server->part, server->part_bytes, MSG_NOSIGNAL) > 0) {
        server->sent++;
        if (server->pause_micros > 0) {
          usleep(server->pause_micros);
        }
      }
    }
    shutdown(peer, SHUT_WR);
    while (recv(peer, request, sizeof request, 0) > 0) {
    }
    close(peer);
  }
  return NULL;
}

static in_port_t start(struct endless *server)
{
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  server->listener = socket(AF_INET, SOCK_STREAM, 0);
  bind(server->listener, (struct sockaddr *) &address, length);
  listen(server->listener, 100);
  getsockname(server->listener, (struct sockaddr *) &address, &length);
  pthread_t thread;
  pthread_create(&thread, NULL, serve, server);
  return ntohs(address.sin_port);
}

static memcached_st *client_at(in_port_t port, bool binary, uint64_t patience_millis)
{
  memcached_st *client = memcached_create(NULL);
  memcached_server_add(client, "127.0.0.1", port);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_BINARY_PROTOCOL, binary);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_POLL_TIMEOUT, patience_millis);
  return client;
}

static memcached_return_t error_of_stat(in_port_t port, bool binary, uint64_t patience_millis)
{
  memcached_st *client = client_at(port, binary, patience_millis);
  memcached_return_t rc = MEMCACHED_SUCCESS;
  memcached_stat_free(client, memcached_stat(client, NULL, &rc));
  if (rc == MEMCACHED_SOME_ERRORS) {
    rc = memcached_server_error_return(memcached_server_instance_by_position(client, 0));
  }
  memcached_free(client);
  return rc;
}

/* A key of one byte that this server of a client has. */
static char key_at(memcached_st *client, uint32_t position)
{
  char key = 'a';
  while (memcached_generate_hash(client, &key, 1) != position) {
    key++;
  }
  return key;
}

/* Asks a client of two servers for a key of each. */
static void ask_both(memcached_st *client)
{
  char first = key_at(client, 0), second = key_at(client, 1);
  const char *keys[] = {&first, &second};
  size_t lengths[] = {1, 1};
  expect(memcached_mget(client, keys, lengths, 2) == MEMCACHED_SUCCESS, "two servers are asked");
}

/* The error of the next item of a multi-get. */
static memcached_return_t error_of_fetch(memcached_st *client)
{
  char key[MEMCACHED_MAX_KEY];
  size_t key_length, length;
  uint32_t flags;
  memcached_return_t rc = MEMCACHED_SUCCESS;
  free(memcached_fetch(client, key, &key_length, &length, &flags, &rc));
  return rc;
}

/* A server that takes connections, and reads nothing. */
static in_port_t deaf(void)
{
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  int bytes = 16 << 10;
  setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  bind(listener, (struct sockaddr *) &address, length);
  listen(listener, 100);
  getsockname(listener, (struct sockaddr *) &address, &length);
  return ntohs(address.sin_port);
}

/* In a process of its own: the heaps of threads have room that the limit does not count. */
static void alone(void (*test)(in_port_t), in_port_t sound, const char *what)
{
  pid_t child = fork();
  if (child == 0) {
    test(sound);
    fflush(stdout);
    _exit(failures > 0);
  }
  int status = 0;
  expect(waitpid(child, &status, 0) == child && status == 0, what);
}

#endif

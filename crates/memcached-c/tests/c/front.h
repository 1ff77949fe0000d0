/* Servers that die and come back: each is behind a front, which passes on what it gets as long as it lives. It listens
 * at a Unix socket in a folder of its own, so that its name, and with it a ring, is the same in each run. */
#ifndef FRONT_H
#define FRONT_H

#include "transcript.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

struct front {
  struct sockaddr_in server;
  struct sockaddr_un address;
  /* The process that passes on; 0: it is dead. */
  pid_t process;
};

struct passage {
  int client;
  const struct front *front;
};

static void *pass(void *context)
{
  struct passage passage = *(struct passage *) context;
  free(context);
  int server = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  connect(server, (struct sockaddr *) &passage.front->server, sizeof passage.front->server);
  struct pollfd ends[] = {{passage.client, POLLIN, 0}, {server, POLLIN, 0}};
  char bytes[65536];
  while (poll(ends, 2, -1) > 0) {
    for (int i = 0; i < 2; i++) {
      ssize_t count = ends[i].revents ? recv(ends[i].fd, bytes, sizeof bytes, 0) : -1;
      if (ends[i].revents && count <= 0) {
        close(passage.client);
        close(server);
        return NULL;
      }
      if (count > 0) {
        send(ends[1 - i].fd, bytes, (size_t) count, MSG_NOSIGNAL);
      }
    }
  }
  return NULL;
}

static void revive(struct front *front)
{
  int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  unlink(front->address.sun_path);
  bind(listener, (struct sockaddr *) &front->address, sizeof front->address);
  listen(listener, 100);
  fflush(stdout);
  front->process = fork();
  if (front->process == 0) {
    for (;;) {
      struct passage *passage = malloc(sizeof *passage);
      *passage = (struct passage) {accept(listener, NULL, NULL), front};
      pthread_t thread;
      pthread_create(&thread, NULL, pass, passage);
      pthread_detach(thread);
    }
  }
  close(listener);
}

static void end(struct front *front)
{
  kill(front->process, SIGKILL);
  waitpid(front->process, NULL, 0);
  front->process = 0;
}

/* A front of `HOST:PORT`, which is an IPv4 address. */
static struct front front_of(const char *server, const char *name)
{
  struct front front = {.server.sin_family = AF_INET, .address.sun_family = AF_UNIX};
  char host[256];
  const char *colon = strrchr(server, ':');
  snprintf(host, sizeof host, "%.*s", (int) (colon - server), server);
  inet_pton(AF_INET, host, &front.server.sin_addr);
  front.server.sin_port = htons((uint16_t) atoi(colon + 1));
  snprintf(front.address.sun_path, sizeof front.address.sun_path, "%s", name);
  return front;
}

#endif

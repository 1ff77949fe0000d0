/* What a server or a caller chooses the size of ends: replies without an end, and memory that there is not. It knows
 * what is right. */
#include "transcript.h"
#include <arpa/inet.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
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

/* A server that answers every request with the head, and then with the same again and again. */
struct endless {
  const char *head;
  size_t head_bytes;
  const char *part;
  size_t part_bytes;
  useconds_t pause_micros;
  size_t most;
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
    ssize_t bytes = recv(peer, request, sizeof request, 0);
    if (bytes > 7 && memcmp(request, "version", 7) == 0) {
      send(peer, S("VERSION 1.6.18\r\n"), MSG_NOSIGNAL);
      bytes = recv(peer, request, sizeof request, 0);
    }
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

static memcached_return_t count(const memcached_instance_st *server, const char *name, size_t name_length,
                                const char *value, size_t value_length, void *context)
{
  (void) server, (void) name, (void) name_length, (void) value, (void) value_length;
  ++*(size_t *) context;
  return MEMCACHED_SUCCESS;
}

static void large_statistics(void)
{
  /* As many as 100,000 connections have. */
  const size_t lines = 400000;
  char *text = malloc(lines * 16 + 5);
  for (size_t i = 0; i < lines; i++) {
    memcpy(text + i * 16, "STAT name text\r\n", 16);
  }
  memcpy(text + lines * 16, "END\r\n", 5);
  static struct endless whole;
  whole.head = text;
  whole.head_bytes = lines * 16 + 5;
  size_t told = 0;
  memcached_st *client = client_at(start(&whole), false, 60000);
  expect(memcached_stat_execute(client, NULL, count, &told) == MEMCACHED_SUCCESS, "large statistics");
  expect(told == lines, "all of large statistics");
  memcached_free(client);
  free(text);
}

static void statistics_without_an_end(void)
{
  static char lines[64 << 10];
  for (size_t i = 0; i < sizeof lines / 16; i++) {
    memcpy(lines + i * 16, "STAT name text\r\n", 16);
  }
  const size_t all = ((size_t) 1 << 30) / sizeof lines;
  struct endless text = {.head = "", .part = lines, .part_bytes = sizeof lines, .most = all};
  expect(error_of_stat(start(&text), false, 60000) == MEMCACHED_UNKNOWN_READ_FAILURE, "endless lines: the error");
  expect(text.sent < all / 16, "endless lines: the client has taken 64 MiB");

  size_t told = 0;
  memcached_st *client = client_at(start(&text), false, 60000);
  memcached_return_t executed = memcached_stat_execute(client, NULL, count, &told);
  expect(executed == MEMCACHED_UNKNOWN_READ_FAILURE && told == 0, "endless lines, one by one: the error");
  memcached_free(client);

  static char packets[64 << 10];
  for (size_t i = 0; i < sizeof packets / 32; i++) {
    char *packet = packets + i * 32;
    memcpy(packet, "\x81\x10\x00\x04\x00\x00\x00\x00\x00\x00\x00\x08", 12);
    memcpy(packet + 24, "nametext", 8);
  }
  struct endless binary = {.head = "", .part = packets, .part_bytes = sizeof packets, .most = all};
  memcached_return_t rc = error_of_stat(start(&binary), true, 60000);
  expect(rc == MEMCACHED_UNKNOWN_READ_FAILURE, "endless packets: the error");
  expect(binary.sent < all / 16, "endless packets: the client has taken 64 MiB");

  /* Each comes in time, and all of them do not: 12,000 are a minute of it. */
  struct endless slow = {.head = "", .part = lines, .part_bytes = 16, .pause_micros = 5000, .most = 12000};
  expect(error_of_stat(start(&slow), false, 100) == MEMCACHED_TIMEOUT, "slow lines: the error");
  expect(slow.sent < slow.most, "slow lines: the client has waited for all");
}

/* Of a reply to a change, or to a login, there is no end either. */
static void replies_without_an_end(void)
{
  static char zeros[64 << 10];
  const size_t all = ((size_t) 1 << 30) / sizeof zeros;
  struct endless slow = {.head = "", .part = "S", .part_bytes = 1, .pause_micros = 5000, .most = 12000};
  memcached_st *client = client_at(start(&slow), false, 100);
  expect(memcached_set(client, S("a"), S("x"), 0, 0) == MEMCACHED_TIMEOUT, "a slow reply: the error");
  expect(slow.sent < slow.most, "a slow reply: the client has waited for all");
  memcached_free(client);

  /* One that has read only the beginning of the request. */
  alarm(60);
  static char value[8 << 20];
  client = client_at(start(&slow), false, 100);
  expect(memcached_set(client, S("a"), value, sizeof value, 0, 0) == MEMCACHED_TIMEOUT,
         "a reply before the request is read: the error");
  memcached_free(client);

  /* And one before the reply that is waited for. */
  client = client_at(start(&slow), false, 100);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_BUFFER_REQUESTS, 1);
  memcached_set(client, S("a"), S("x"), 0, 0);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_BUFFER_REQUESTS, 0);
  uint64_t number = 0;
  expect(memcached_increment(client, S("n"), 1, &number) == MEMCACHED_TIMEOUT,
         "a slow reply to a buffered request: the error");
  memcached_free(client);
  alarm(0);

  /* The protocol announces 1 GiB of words for an error. */
  struct endless words = {
    .head = "\x81\x01\x00\x00\x00\x00\x00\x84\x40\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
    .head_bytes = 24, .part = zeros, .part_bytes = sizeof zeros, .most = all,
  };
  client = client_at(start(&words), true, 60000);
  expect(memcached_set(client, S("a"), S("x"), 0, 0) == MEMCACHED_UNKNOWN_READ_FAILURE, "a long error: the error");
  expect(words.sent < all / 16, "a long error: the client has taken 64 MiB");
  memcached_free(client);

  struct endless login = {
    .head = "\x81\x21\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00", .head_bytes = 12, .part = "", .part_bytes = 1,
    .pause_micros = 5000, .most = 12000,
  };
  client = client_at(start(&login), true, 100);
  memcached_set_sasl_auth_data(client, "user", "password");
  memcached_set(client, S("a"), S("x"), 0, 0);
  expect(memcached_last_error(client) == MEMCACHED_TIMEOUT, "a slow login: the error");
  expect(login.sent < login.most, "a slow login: the client has waited for all");
  memcached_free(client);
}

/* What nobody has asked for is not the reply to the next request. */
static void replies_too_many(void)
{
  struct endless eager = {.part = "", .most = 0};
  eager.head = "VALUE a 0 1\r\nx\r\nEND\r\nVALUE b 0 5\r\nEXTRA\r\nEND\r\n";
  eager.head_bytes = strlen(eager.head);
  memcached_st *client = client_at(start(&eager), false, 60000);
  for (const char *key = "ab"; *key; key++) {
    size_t length = 0;
    uint32_t flags = 0;
    memcached_return_t rc = MEMCACHED_SUCCESS;
    char *value = memcached_get(client, key, 1, &length, &flags, &rc);
    expect((value != NULL) == (*key == 'a'), "replies too many: only what was asked for");
    free(value);
  }
  memcached_free(client);
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

static void servers_that_do_not_read(in_port_t sound)
{
  static char value[10000];
  /* Of a client that waits for ever. */
  alarm(60);
  for (int binary = 0; binary < 2; binary++) {
    memcached_st *client = client_at(deaf(), binary, 100);
    memcached_behavior_set(client, MEMCACHED_BEHAVIOR_SOCKET_SEND_SIZE, 16 << 10);
    memcached_behavior_set(client, MEMCACHED_BEHAVIOR_NOREPLY, 1);
    memcached_return_t rc = MEMCACHED_SUCCESS;
    for (int i = 0; i < 1000 && rc == MEMCACHED_SUCCESS; i++) {
      rc = memcached_set(client, S("a"), value, sizeof value, 0, 0);
    }
    expect(rc == MEMCACHED_TIMEOUT, "a server that does not read: the error");
    memcached_free(client);
  }

  memcached_st *client = client_at(sound, true, 100);
  memcached_server_add(client, "127.0.0.1", deaf());
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_SOCKET_SEND_SIZE, 16 << 10);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_NUMBER_OF_REPLICAS, 1);
  char key[] = "a";
  while (memcached_generate_hash(client, key, 1) != 0) {
    key[0]++;
  }
  int stored = 0;
  for (int i = 0; i < 50; i++) {
    stored += memcached_set(client, key, 1, value, sizeof value, 0, 0) == MEMCACHED_SUCCESS;
  }
  expect(stored > 0, "a replica that does not read: its owner is written");
  memcached_free(client);
  alarm(0);
}

/* Leaves this process so much address space and no more. */
static void leave(size_t bytes)
{
  FILE *statm = fopen("/proc/self/statm", "r");
  size_t pages = 0;
  if (statm == NULL || fscanf(statm, "%zu", &pages) != 1) {
    exit(1);
  }
  fclose(statm);
  struct rlimit limit;
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = pages * (size_t) sysconf(_SC_PAGESIZE) + bytes;
  setrlimit(RLIMIT_AS, &limit);
}

static void *reserved(size_t bytes)
{
  void *memory = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

/* A server that does not end its connection when it is told to, and one that says nothing while signals come. */
static void ends_of_waits(void)
{
  struct endless late = {.head = "", .part = "S", .part_bytes = 1, .pause_micros = 5000, .most = 12000};
  memcached_st *client = client_at(start(&late), false, 100);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_BUFFER_REQUESTS, 1);
  memcached_set(client, S("a"), S("x"), 0, 0);
  memcached_quit(client);
  expect(late.sent < late.most, "a farewell: the client has waited for all");
  memcached_free(client);
}

static volatile sig_atomic_t signals;

static void count_signal(int number)
{
  (void) number;
  /* A minute of them. */
  if (++signals == 3000) {
    _exit(1);
  }
}

static void signals_while_waiting(in_port_t unused)
{
  (void) unused;
  struct sigaction action = {.sa_handler = count_signal};
  sigaction(SIGALRM, &action, NULL);
  struct itimerval often = {{0, 20000}, {0, 20000}};
  memcached_st *client = client_at(deaf(), false, 100);
  setitimer(ITIMER_REAL, &often, NULL);
  memcached_return_t rc = MEMCACHED_SUCCESS;
  size_t length;
  uint32_t flags;
  memcached_get(client, S("a"), &length, &flags, &rc);
  expect(rc == MEMCACHED_TIMEOUT && signals > 0, "a wait with signals ends in time");
  memcached_free(client);
}

static void values_without_memory(in_port_t sound)
{
  static char zeros[64 << 10];
  struct endless large = {
    .head = "VALUE large 0 1000000000\r\n", .head_bytes = 26, .part = zeros, .part_bytes = sizeof zeros,
    .most = ((size_t) 1 << 30) / sizeof zeros,
  };
  in_port_t port = start(&large);
  const size_t value_bytes = 900u << 20;
  const size_t keys = 20u << 20;
  const char *value = reserved(value_bytes);
  const char *const *texts = reserved(keys * sizeof *texts);
  const size_t *lengths = reserved(keys * sizeof *lengths);
  const uint32_t *buckets = reserved(keys * 8 * sizeof *buckets);
  expect(value && texts && lengths && buckets, "there is address space for the test");
  leave(200u << 20);

  memcached_st *client = client_at(port, false, 60000);
  size_t length = 0;
  uint32_t flags = 0;
  memcached_return_t rc = MEMCACHED_SUCCESS;
  char *got_value = memcached_get(client, S("large"), &length, &flags, &rc);
  expect(got_value == NULL && rc == MEMCACHED_MEMORY_ALLOCATION_FAILURE, "a value of a server");
  expect(memcached_last_error(client) == MEMCACHED_MEMORY_ALLOCATION_FAILURE, "what is remembered of it");
  memcached_free(client);

  for (int binary = 0; binary < 2; binary++) {
    client = client_at(sound, binary, 60000);
    memcached_flush(client, 0);
    memcached_behavior_set(client, MEMCACHED_BEHAVIOR_BUFFER_REQUESTS, 1);
    rc = memcached_set(client, S("before"), S("buffered"), 0, 0);
    expect(rc == MEMCACHED_BUFFERED, "a value that is buffered");
    rc = memcached_set(client, S("a"), value, (size_t) 1 << 31, 0, 0);
    expect(rc == MEMCACHED_E2BIG, "a value that no protocol announces");
    rc = memcached_set(client, S("a"), value, value_bytes, 0, 0);
    expect(rc == MEMCACHED_MEMORY_ALLOCATION_FAILURE, "a value of a caller");
    expect(memcached_flush_buffers(client) == MEMCACHED_SUCCESS, "what is buffered is sent");
    memcached_behavior_set(client, MEMCACHED_BEHAVIOR_BUFFER_REQUESTS, 0);
    char *before = memcached_get(client, S("before"), &length, &flags, &rc);
    expect(before && length == 8 && memcmp(before, "buffered", 8) == 0, "a value that was buffered before");
    free(before);
    rc = memcached_mget(client, texts, lengths, keys);
    expect(rc == MEMCACHED_MEMORY_ALLOCATION_FAILURE, "keys of a caller");
    rc = memcached_bucket_set(client, buckets, NULL, keys * 8, 0);
    expect(rc == MEMCACHED_MEMORY_ALLOCATION_FAILURE, "buckets of a caller");
    /* The client is as before. */
    memcached_behavior_set(client, MEMCACHED_BEHAVIOR_DISTRIBUTION, MEMCACHED_DISTRIBUTION_MODULA);
    expect(memcached_set(client, S("a"), S("small"), 0, 7) == MEMCACHED_SUCCESS, "a small value afterwards");
    char *small = memcached_get(client, S("a"), &length, &flags, &rc);
    expect(small && length == 5 && memcmp(small, "small", 5) == 0 && flags == 7, "which is there");
    free(small);
    memcached_free(client);
  }
}

/* With any room that there is, an encrypted value comes, or there is no memory: it is not garbled. */
static void decryption_without_memory(in_port_t sound)
{
  static char value[900000];
  mallopt(M_MMAP_THRESHOLD, 64 << 10);
  memcached_st *client = client_at(sound, false, 60000);
  memcached_set_encoding_key(client, S("0123456789abcdef0123456789abcdef"));
  expect(memcached_set(client, S("a"), value, sizeof value, 0, 0) == MEMCACHED_SUCCESS, "an encrypted value is stored");
  /* A stack that cannot grow would end the program. */
  volatile char stack[512 << 10];
  memset((char *) stack, 0, sizeof stack);
  bool was_short = false, is_right = true;
  for (size_t room = 256 << 10; room < (8u << 20); room += 128 << 10) {
    leave(room);
    size_t length = 0;
    uint32_t flags = 0;
    memcached_return_t rc = MEMCACHED_SUCCESS;
    free(memcached_get(client, S("a"), &length, &flags, &rc));
    was_short |= rc == MEMCACHED_MEMORY_ALLOCATION_FAILURE;
    is_right &= rc == MEMCACHED_SUCCESS || rc == MEMCACHED_MEMORY_ALLOCATION_FAILURE;
  }
  expect(was_short, "there was too little memory for an encrypted value");
  expect(is_right, "an encrypted value that there is no memory for");
  memcached_free(client);
}

/* With any room that there is, servers are added and placed, or neither. */
static void placement_without_memory(in_port_t unused)
{
  (void) unused;
  mallopt(M_MMAP_THRESHOLD, 64 << 10);
  volatile char stack[512 << 10];
  memset((char *) stack, 0, sizeof stack);
  memcached_server_list_st list = NULL;
  memcached_return_t rc;
  char host[1000];
  for (int i = 0; i < 1000; i++) {
    snprintf(host, sizeof host, "%0900d", i);
    list = memcached_server_list_append_with_weight(list, host, 1, (uint32_t) i + 1, &rc);
  }
  memcached_st *client = memcached_create(NULL);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED, 1);
  memcached_server_add(client, "first", 1);
  bool is_right = true;
  int short_of = 0, pushed = 0, weighed = 0;
  for (size_t room = 256 << 10; pushed == 0 && room < (256u << 20); room += 512 << 10) {
    leave(room);
    rc = memcached_server_push(client, list);
    short_of += rc == MEMCACHED_MEMORY_ALLOCATION_FAILURE;
    pushed += rc == MEMCACHED_SUCCESS;
    is_right &= rc == MEMCACHED_SUCCESS || rc == MEMCACHED_MEMORY_ALLOCATION_FAILURE;
    is_right &= memcached_server_count(client) == (rc == MEMCACHED_SUCCESS ? 1001 : 1);
  }
  expect(pushed == 1 && short_of > 4, "there was too little memory for servers, and then enough");
  expect(is_right, "servers that there is no memory for");
  /* The distribution stays as well, and keys where they are. */
  uint32_t before = memcached_generate_hash(client, S("a"));
  for (size_t room = 256 << 10; weighed == 0 && room < (256u << 20); room += 512 << 10) {
    leave(room);
    rc = memcached_behavior_set(client, MEMCACHED_BEHAVIOR_DISTRIBUTION, MEMCACHED_DISTRIBUTION_CONSISTENT);
    weighed += rc == MEMCACHED_SUCCESS;
    if (rc != MEMCACHED_SUCCESS) {
      is_right &= rc == MEMCACHED_MEMORY_ALLOCATION_FAILURE && memcached_generate_hash(client, S("a")) == before;
      is_right &= memcached_behavior_get(client, MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED) == 1;
    }
  }
  expect(is_right && weighed == 1, "a distribution that there is no memory for");
  memcached_server_list_free(list);
  memcached_free(client);
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

int main(int argc, char **argv)
{
  if (argc != 2) {
    return 2;
  }
  in_port_t sound = (in_port_t) atoi(strrchr(argv[1], ':') + 1);
  alone(decryption_without_memory, sound, "decryption with little memory");
  alone(signals_while_waiting, sound, "signals in a wait");
  alone(placement_without_memory, sound, "placement with little memory");
  large_statistics();
  statistics_without_an_end();
  replies_without_an_end();
  replies_too_many();
  servers_that_do_not_read(sound);
  ends_of_waits();
  values_without_memory(sound);
  if (failures == 0) {
    printf("all is bounded\n");
  }
  return failures > 0;
}

/* Waits end, whatever a server does. It knows what is right. */
#include "stub.h"
#include <signal.h>
#include <sys/time.h>

/* Each line comes in time, and all of them do not: 12,000 are a minute of it. */
static void slow_statistics(void)
{
  struct endless slow = {
    .head = "", .part = "STAT name text\r\n", .part_bytes = 16, .pause_micros = 5000, .most = 12000,
  };
  expect(error_of_stat(start(&slow), false, 100) == MEMCACHED_TIMEOUT, "slow lines: the error");
  expect(slow.sent < slow.most, "slow lines: the client has waited for all");
}

static void slow_replies(void)
{
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
  alarm(0);

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

/* Replies before the one that is waited for: each comes in time, and all of them do not. */
static void slow_replies_to_buffered_requests(void)
{
  struct endless parts[] = {
    {.head = "", .part = "S", .part_bytes = 1, .pause_micros = 5000, .most = 12000},
    {.head = "", .part = "STORED\r\n", .part_bytes = 8, .pause_micros = 50000, .most = 100},
  };
  for (int i = 0; i < 4; i++) {
    struct endless *slow = &parts[i % 2];
    memcached_st *client = client_at(start(slow), false, 200);
    memcached_behavior_set(client, MEMCACHED_BEHAVIOR_BUFFER_REQUESTS, 1);
    for (int request = 0; request < 90; request++) {
      memcached_set(client, S("a"), S("x"), 0, 0);
    }
    if (i < 2) {
      uint64_t number = 0;
      expect(memcached_increment(client, S("n"), 1, &number) == MEMCACHED_TIMEOUT,
             "slow replies to buffered requests: the error");
    } else {
      size_t length;
      uint32_t flags;
      memcached_return_t rc;
      memcached_get(client, S("a"), &length, &flags, &rc);
    }
    expect(slow->sent < 90, "slow replies to buffered requests: the client has waited for all");
    memcached_free(client);
  }
}

/* A value, or the line before it, of which a byte comes now and then. */
static void slow_values(void)
{
  struct endless parts[] = {
    {.head = "VALUE a 0 100000\r\n", .head_bytes = 18, .part = "x"},
    {.head = "", .part = "V"},
    {.head = "VALUE a 0 1\r\nx\r\n", .head_bytes = 16, .part = "E"},
  };
  for (int i = 0; i < 6; i++) {
    struct endless *slow = &parts[i % 3];
    slow->part_bytes = 1;
    slow->pause_micros = 5000;
    /* Fewer than a line may have. */
    slow->most = 2000;
    memcached_st *client = client_at(start(slow), false, 100);
    memcached_return_t rc = MEMCACHED_SUCCESS;
    size_t length;
    uint32_t flags;
    if (i < 3) {
      memcached_get(client, S("a"), &length, &flags, &rc);
    } else {
      const char *keys[] = {"a"};
      size_t lengths[] = {1};
      expect(memcached_mget(client, keys, lengths, 1) == MEMCACHED_SUCCESS, "a slow value is asked for");
      char key[MEMCACHED_MAX_KEY];
      while (rc == MEMCACHED_SUCCESS) {
        free(memcached_fetch(client, key, &length, &length, &flags, &rc));
      }
    }
    expect(rc == MEMCACHED_TIMEOUT, "a slow value: the error");
    expect(slow->sent < slow->most, "a slow value: the client has waited for all");
    memcached_free(client);
  }
}

/* Both have the time of one wait together. */
static void silent_servers(void)
{
  struct endless late[] = {
    {.head = "END\r\n", .head_bytes = 5, .part = "", .delay_micros = 1900000},
    {.head = "END\r\n", .head_bytes = 5, .part = "", .delay_micros = 1900000},
  };
  memcached_st *client = client_at(start(late), false, 1000);
  memcached_server_add(client, "127.0.0.1", start(late + 1));
  ask_both(client);
  expect(error_of_fetch(client) == MEMCACHED_TIMEOUT, "silent servers: the error");
  memcached_free(client);
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

/* More replicas than there are servers: each server is asked once. */
static void replicas_without_end(in_port_t sound)
{
  alarm(60);
  memcached_st *client = client_at(sound, true, 60000);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_NUMBER_OF_REPLICAS, UINT32_MAX);
  expect(memcached_set(client, S("a"), S("x"), 0, 0) == MEMCACHED_SUCCESS, "replicas without an end: a store");
  memcached_free(client);
  client = client_at(1, true, 60000);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_NUMBER_OF_REPLICAS, UINT32_MAX);
  size_t length;
  uint32_t flags;
  memcached_return_t rc = MEMCACHED_SUCCESS;
  memcached_get(client, S("a"), &length, &flags, &rc);
  expect(memcached_failed(rc), "replicas without an end: a server that is away");
  memcached_free(client);
  alarm(0);
}

/* A server that does not end its connection when it is told to. */
static void slow_farewells(void)
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

/* A server that reads and says nothing while signals come. */
static void signals_while_waiting(in_port_t unused)
{
  (void) unused;
  static char value[16 << 20];
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
  signals = 0;
  rc = memcached_set(client, S("a"), value, sizeof value, 0, 0);
  expect(rc == MEMCACHED_TIMEOUT && signals > 0, "a wait to send with signals ends in time");
  memcached_free(client);
}

int main(int argc, char **argv)
{
  if (argc != 2) {
    return 2;
  }
  in_port_t sound = (in_port_t) atoi(strrchr(argv[1], ':') + 1);
  alone(signals_while_waiting, sound, "signals in a wait");
  slow_statistics();
  slow_replies();
  slow_replies_to_buffered_requests();
  slow_values();
  silent_servers();
  servers_that_do_not_read(sound);
  replicas_without_end(sound);
  slow_farewells();
  if (failures == 0) {
    printf("all waits end\n");
  }
  return failures > 0;
}

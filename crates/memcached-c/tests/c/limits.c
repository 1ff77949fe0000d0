/* What a server or a caller chooses the size of ends: replies without an end, and memory that there is not. It knows
 * what is right. */
#include "stub.h"
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>

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
}

static void errors_without_an_end(void)
{
  static char zeros[64 << 10];
  const size_t all = ((size_t) 1 << 30) / sizeof zeros;
  /* The protocol announces 1 GiB of words. */
  struct endless words = {
    .head = "\x81\x01\x00\x00\x00\x00\x00\x84\x40\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
    .head_bytes = 24, .part = zeros, .part_bytes = sizeof zeros, .most = all,
  };
  memcached_st *client = client_at(start(&words), true, 60000);
  expect(memcached_set(client, S("a"), S("x"), 0, 0) == MEMCACHED_UNKNOWN_READ_FAILURE, "a long error: the error");
  expect(words.sent < all / 16, "a long error: the client has taken 64 MiB");
  memcached_free(client);

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

/* With any room that there is, many keys are asked for and statistics of a long name, or neither. */
static void requests_without_memory(in_port_t sound)
{
  enum { COUNT = 100000, NAME_BYTES = 4 << 20 };
  static char texts[COUNT][20];
  static const char *keys[COUNT];
  static size_t lengths[COUNT];
  for (size_t i = 0; i < COUNT; i++) {
    lengths[i] = (size_t) sprintf(texts[i], "a-long-key-%zu", i);
    keys[i] = texts[i];
  }
  char *name = malloc(NAME_BYTES);
  memset(name, 'a', NAME_BYTES);
  for (size_t i = 1; i < NAME_BYTES; i += 2) {
    name[i] = ' ';
  }
  name[NAME_BYTES - 1] = 0;
  mallopt(M_MMAP_THRESHOLD, 64 << 10);
  volatile char stack[512 << 10];
  memset((char *) stack, 0, sizeof stack);
  for (int binary = 0; binary < 2; binary++) {
    memcached_st *client = client_at(sound, binary, 60000);
    memcached_version(client);
    int short_of = 0, asked = 0;
    for (size_t room = 256 << 10; asked == 0 && room < (256u << 20); room += 256 << 10) {
      leave(room);
      memcached_return_t rc = memcached_mget(client, keys, lengths, COUNT);
      short_of += rc == MEMCACHED_MEMORY_ALLOCATION_FAILURE;
      asked += rc == MEMCACHED_SUCCESS;
      memcached_quit(client);
    }
    expect(short_of > 4 && asked == 1, "there was too little memory for keys, and then enough");
    short_of = 0;
    for (size_t room = 256 << 10; room < (16u << 20); room += 256 << 10) {
      leave(room);
      memcached_return_t rc;
      memcached_stat_free(client, memcached_stat(client, name, &rc));
      short_of += memcached_last_error(client) == MEMCACHED_MEMORY_ALLOCATION_FAILURE;
      memcached_stat_execute(client, name, count, NULL);
    }
    expect(short_of > 4, "there was too little memory for the name of statistics");
    memcached_free(client);
  }
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

int main(int argc, char **argv)
{
  if (argc != 2) {
    return 2;
  }
  in_port_t sound = (in_port_t) atoi(strrchr(argv[1], ':') + 1);
  alone(decryption_without_memory, sound, "decryption with little memory");
  alone(requests_without_memory, sound, "requests with little memory");
  alone(placement_without_memory, sound, "placement with little memory");
  large_statistics();
  statistics_without_an_end();
  errors_without_an_end();
  values_without_memory(sound);
  if (failures == 0) {
    printf("all is bounded\n");
  }
  return failures > 0;
}

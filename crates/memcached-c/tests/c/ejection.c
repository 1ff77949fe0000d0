/* A server dies and comes back: when it is left alone, ejected and tried again, whatever is asked. ejection SERVER
 * SERVER */
#include "front.h"

enum { FRONTS = 2, KEYS = 8, TRIES = 9 };

static struct front fronts[FRONTS];

struct setting {
  bool binary;
  uint64_t replicas;
  uint64_t limit;
  uint64_t timeouts;
  bool ejects;
  memcached_server_distribution_t distribution;
  /* What else is set. */
  int also;
};

enum { NOTHING = -1 };

static memcached_st *client_with(const struct setting *setting)
{
  memcached_st *client = memcached_create(NULL);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_BINARY_PROTOCOL, setting->binary);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_DISTRIBUTION, setting->distribution);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_NUMBER_OF_REPLICAS, setting->replicas);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_REMOVE_FAILED_SERVERS, setting->ejects);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_SERVER_FAILURE_LIMIT, setting->limit);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_SERVER_TIMEOUT_LIMIT, setting->timeouts);
  // Times are over when the program says so: a busy machine has none of its own.
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_RETRY_TIMEOUT, 1000);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_DEAD_TIMEOUT, 2000);
  for (int i = 0; i < FRONTS; i++) {
    memcached_server_add_unix_socket(client, fronts[i].address.sun_path);
  }
  if (setting->also != NOTHING) {
    memcached_behavior_set(client, (memcached_behavior_t) setting->also, 1);
  }
  return client;
}

/* The time of every server that is left alone is over. */
static void time_is_up(memcached_st *client)
{
  for (uint32_t i = 0; i < FRONTS; i++) {
    memcached_instance_next_retry(memcached_server_instance_by_position(client, i), 1);
  }
}

static int get(memcached_st *client, const char *key)
{
  size_t length;
  uint32_t flags;
  memcached_return_t rc;
  free(memcached_get(client, S(key), &length, &flags, &rc));
  // With replicas that all are away libmemcached finds nothing, and we say that they are away.
  return rc == MEMCACHED_SUCCESS ? 0 : 1;
}

static int mget(memcached_st *client, const char *key)
{
  (void) key;
  char names[KEYS][20];
  const char *keys[KEYS];
  size_t lengths[KEYS];
  for (int i = 0; i < KEYS; i++) {
    lengths[i] = (size_t) sprintf(names[i], "key%d", i);
    keys[i] = names[i];
  }
  memcached_mget(client, keys, lengths, KEYS);
  memcached_return_t rc;
  memcached_result_st *result;
  int count = 0;
  while ((result = memcached_fetch_result(client, NULL, &rc)) != NULL) {
    count++;
    memcached_result_free(result);
  }
  return count;
}

static int set(memcached_st *client, const char *key) { return memcached_set(client, S(key), S("1"), 0, 0); }
static int add(memcached_st *client, const char *key) { return memcached_add(client, S(key), S("1"), 0, 0); }
static int replace(memcached_st *client, const char *key) { return memcached_replace(client, S(key), S("1"), 0, 0); }
static int append(memcached_st *client, const char *key) { return memcached_append(client, S(key), S("1"), 0, 0); }
static int cas(memcached_st *client, const char *key) { return memcached_cas(client, S(key), S("1"), 0, 0, 1); }
static int delete(memcached_st *client, const char *key) { return memcached_delete(client, S(key), 0); }
static int touch(memcached_st *client, const char *key) { return memcached_touch(client, S(key), 1000); }
static int exist(memcached_st *client, const char *key) { return memcached_exist(client, S(key)); }
static int increment(memcached_st *client, const char *key)
{
  uint64_t number;
  return memcached_increment(client, S(key), 1, &number);
}
static int version(memcached_st *client, const char *key) { return (void) key, memcached_version(client); }
static int flush(memcached_st *client, const char *key) { return (void) key, memcached_flush(client, 1000); }
/* As PHP does between requests. */
static int quit_and_get(memcached_st *client, const char *key) { return memcached_quit(client), get(client, key); }
static int quit_and_set(memcached_st *client, const char *key) { return memcached_quit(client), set(client, key); }
static int get_and_set(memcached_st *client, const char *key) { return get(client, key) * 100 + set(client, key); }

static const struct {
  const char *name;
  int (*ask)(memcached_st *, const char *);
} requests[] = {
  {"get", get}, {"mget", mget}, {"set", set}, {"quit, get", quit_and_get}, {"quit, set", quit_and_set},
  {"get, set", get_and_set}, {"add", add}, {"replace", replace}, {"append", append}, {"cas", cas}, {"touch", touch},
  {"exist", exist}, {"incr", increment}, {"version", version}, {"flush", flush}, {"delete", delete},
};

/* So many of them make sense if answers are not asked for, or come later: libmemcached takes them for those to others. */
enum { SILENT = 6 };

/* The same request again and again, and what each returns. */
static void ask(memcached_st *client, int request, const char *when, int times)
{
  char codes[200] = "";
  for (int i = 0; i < times; i++) {
    char key[20];
    sprintf(key, "key%d", i % KEYS);
    sprintf(codes + strlen(codes), " %d", requests[request].ask(client, key));
  }
  say("%s, %s:%s", requests[request].name, when, codes);
}

/* Sets all keys. */
static void fill(memcached_st *client)
{
  for (int k = 0; k < KEYS; k++) {
    char key[20];
    sprintf(key, "key%d", k);
    set(client, key);
  }
}

static void die_and_return(const struct setting *setting, int request, char **servers)
{
  // What earlier ones have sent may still be on its way: each has items of its own.
  static int number;
  char namespace[20];
  sprintf(namespace, "%d.", number++);
  for (int i = 0; i < FRONTS; i++) {
    revive(&fronts[i]);
  }
  memcached_st *client = client_with(setting);
  memcached_callback_set(client, MEMCACHED_CALLBACK_NAMESPACE, namespace);
  fill(client);
  // Both have all of them.
  for (int i = 0; i < FRONTS; i++) {
    char *one[] = {servers[i], NULL};
    memcached_st *filler = client_of(one, false);
    memcached_callback_set(filler, MEMCACHED_CALLBACK_NAMESPACE, namespace);
    fill(filler);
    memcached_free(filler);
  }
  end(&fronts[0]);
  ask(client, request, "one is dead", TRIES);
  time_is_up(client);
  ask(client, request, "still, later", TRIES);
  time_is_up(client);
  revive(&fronts[0]);
  ask(client, request, "it is back", TRIES);
  end(&fronts[0]);
  end(&fronts[1]);
  ask(client, request, "both are dead", TRIES);
  memcached_free(client);
}

int main(int argc, char **argv)
{
  (void) argc;
  char folder[] = "/tmp/ejection.XXXXXX";
  if (mkdtemp(folder) == NULL || chdir(folder) != 0) {
    perror(folder);
    return 1;
  }
  for (int i = 0; i < FRONTS; i++) {
    char name[] = {(char) ('a' + i), 0};
    fronts[i] = front_of(argv[1 + i], name);
  }
  static const struct setting settings[] = {
    {true, 1, 2, 0, true, MEMCACHED_DISTRIBUTION_MODULA, NOTHING},
    {true, 1, 2, 0, true, MEMCACHED_DISTRIBUTION_CONSISTENT, NOTHING},
    {true, 1, 1, 0, true, MEMCACHED_DISTRIBUTION_CONSISTENT, NOTHING},
    {true, 1, 2, 3, true, MEMCACHED_DISTRIBUTION_CONSISTENT, NOTHING},
    {true, 1, 2, 0, false, MEMCACHED_DISTRIBUTION_CONSISTENT, NOTHING},
    {true, 1, 2, 0, true, MEMCACHED_DISTRIBUTION_CONSISTENT, MEMCACHED_BEHAVIOR_NOREPLY},
    {true, 1, 2, 0, true, MEMCACHED_DISTRIBUTION_CONSISTENT, MEMCACHED_BEHAVIOR_BUFFER_REQUESTS},
    {true, 0, 2, 0, true, MEMCACHED_DISTRIBUTION_CONSISTENT, NOTHING},
    {true, 0, 1, 0, true, MEMCACHED_DISTRIBUTION_CONSISTENT, NOTHING},
    {false, 1, 2, 0, true, MEMCACHED_DISTRIBUTION_CONSISTENT, NOTHING},
    {false, 0, 1, 0, true, MEMCACHED_DISTRIBUTION_CONSISTENT, NOTHING},
    {false, 0, 2, 0, true, MEMCACHED_DISTRIBUTION_CONSISTENT, MEMCACHED_BEHAVIOR_NOREPLY},
    {false, 0, 2, 0, true, MEMCACHED_DISTRIBUTION_CONSISTENT, MEMCACHED_BEHAVIOR_BUFFER_REQUESTS},
  };
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
    const struct setting *setting = &settings[i];
    char name[200];
    sprintf(name, "%s, %" PRIu64 " replicas, limits %" PRIu64 " and %" PRIu64 ", %s, %s, %s", protocols[setting->binary],
            setting->replicas, setting->limit, setting->timeouts, setting->ejects ? "ejects" : "ejects none",
            libmemcached_string_distribution(setting->distribution),
            setting->also == NOTHING ? "nothing else"
                                     : libmemcached_string_behavior((memcached_behavior_t) setting->also));
    topic = name;
    int last = setting->also == NOTHING ? (int) (sizeof requests / sizeof *requests) : SILENT;
    for (int request = 0; request < last; request++) {
      die_and_return(setting, request, argv + 1);
    }
  }
  for (int i = 0; i < FRONTS; i++) {
    unlink(fronts[i].address.sun_path);
  }
  rmdir(folder);
  return 0;
}

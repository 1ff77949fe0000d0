/* Threads with small stacks, as servers with many of them have. It knows what is right: that it ends well. */
#include "transcript.h"
#include <libmemcachedutil-1.0/pool.h>
#include <pthread.h>

static const char *server;

static memcached_return_t count(const memcached_st *client, memcached_result_st *result, void *context)
{
  (void) client;
  (void) result;
  ++*(int *) context;
  return MEMCACHED_SUCCESS;
}

static void *work(void *context)
{
  memcached_st *client = memcached_create(NULL);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_BINARY_PROTOCOL, *(int *) context);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED, 1);
  memcached_server_list_st list = memcached_servers_parse(server);
  memcached_server_push(client, list);
  memcached_server_list_free(list);
  char text[100];
  int sound = memcached_set(client, S("small"), S("stack"), 0, 0) == MEMCACHED_SUCCESS;
  const char *keys[] = {"small", "none"};
  size_t lengths[] = {5, 4};
  sound += memcached_mget(client, keys, lengths, 2) == MEMCACHED_SUCCESS;
  int items = 0;
  memcached_execute_fn functions[] = {count};
  memcached_fetch_execute(client, functions, &items, 1);
  sound += items == 1;
  memcached_return_t rc;
  memcached_stat_free(client, memcached_stat(client, NULL, &rc));
  sound += rc == MEMCACHED_SUCCESS;
  memcached_st *clone = memcached_clone(NULL, client);
  sound += memcached_delete(clone, S("small"), 0) == MEMCACHED_SUCCESS;
  memcached_free(clone);
  int length = snprintf(text, sizeof text, "--SERVER=%s --POOL-MIN=1 --POOL-MAX=2", server);
  memcached_pool_st *pool = memcached_pool(text, (size_t) length);
  memcached_st *taken = memcached_pool_pop(pool, false, &rc);
  sound += memcached_exist(taken, S("small")) == MEMCACHED_NOTFOUND;
  memcached_pool_push(pool, taken);
  memcached_pool_destroy(pool);
  memcached_free(client);
  return sound == 6 ? context : NULL;
}

int main(int argc, char **argv)
{
  if (argc != 2) {
    return 2;
  }
  server = argv[1];
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 24 << 10);
  for (int binary = 0; binary < 2; binary++) {
    pthread_t thread;
    void *result = NULL;
    pthread_create(&thread, &attributes, work, &binary);
    pthread_join(thread, &result);
    if (result != &binary) {
      printf("wrong in the %s protocol\n", protocols[binary]);
      return 1;
    }
  }
  printf("24 KiB of stack suffice\n");
  return 0;
}

/* The first example of Eric Lambert's "basic UDP support in libmemcached" (March 2009), between the two remarks. */
#include <libmemcached/memcached.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
  /* --- */
memcached_st *memc;
//creates handle for client instance
memc= memcached_create(NULL);
//turns on udp behavior for the memc client handle
memcached_behavior_set(memc, MEMCACHED_BEHAVIOR_USE_UDP, 1);
//add the server 127.0.0.1:11211 to the client
memcached_server_add_udp(memc, "127.0.0.1", 11211);
//store some data
char *key= "foo";
char *value= "when we sanitize";
memcached_return rc= memcached_set(memc, key, strlen(key),value, strlen(value),(time_t)0, (uint32_t)0);
  /* --- */
  printf("%d %s\n", rc, memcached_strerror(memc, rc));
  memcached_free(memc);
  return rc != MEMCACHED_SUCCESS;
}

/*
 * Pools and short checks: the declarations of libmemcachedutil 1.0, as liblarder_memcached has them. Its manual
 * describes them.
 */
#pragma once

#include <libmemcached-1.0/memcached.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct memcached_pool_st memcached_pool_st;

LIBMEMCACHED_API memcached_pool_st *memcached_pool_create(memcached_st *memc, uint32_t initial, uint32_t max);
LIBMEMCACHED_API memcached_pool_st *memcached_pool(const char *option_string, size_t option_string_length);
LIBMEMCACHED_API memcached_st *memcached_pool_destroy(memcached_pool_st *pool);
LIBMEMCACHED_API memcached_st *memcached_pool_pop(memcached_pool_st *pool, bool block, memcached_return_t *rc);
LIBMEMCACHED_API memcached_return_t memcached_pool_push(memcached_pool_st *pool, memcached_st *memc);
LIBMEMCACHED_API memcached_return_t memcached_pool_release(memcached_pool_st *pool, memcached_st *memc);
LIBMEMCACHED_API memcached_st *memcached_pool_fetch(memcached_pool_st *pool, struct timespec *relative_time,
                                                    memcached_return_t *rc);
LIBMEMCACHED_API memcached_return_t memcached_pool_behavior_set(memcached_pool_st *pool, memcached_behavior_t flag,
                                                                uint64_t data);
LIBMEMCACHED_API memcached_return_t memcached_pool_behavior_get(memcached_pool_st *pool, memcached_behavior_t flag,
                                                                uint64_t *value);

LIBMEMCACHED_API bool libmemcached_util_ping(const char *hostname, in_port_t port, memcached_return_t *rc);
LIBMEMCACHED_API bool libmemcached_util_ping2(const char *hostname, in_port_t port, const char *username,
                                              const char *password, memcached_return_t *rc);
LIBMEMCACHED_API bool libmemcached_util_flush(const char *hostname, in_port_t port, memcached_return_t *rc);
LIBMEMCACHED_API pid_t libmemcached_util_getpid(const char *hostname, in_port_t port, memcached_return_t *rc);
LIBMEMCACHED_API pid_t libmemcached_util_getpid2(const char *hostname, in_port_t port, const char *username,
                                                 const char *password, memcached_return_t *rc);
LIBMEMCACHED_API bool libmemcached_util_version_check(memcached_st *memc, uint8_t major, uint8_t minor, uint8_t micro);

#ifdef __cplusplus
}
#endif

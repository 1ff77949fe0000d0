/*
 * Hash functions of keys, and encryption of values: the declarations of libhashkit 1.0, as liblarder_memcached has
 * them. Its manual describes them.
 */
#pragma once

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef HASHKIT_API
#  define HASHKIT_API
#endif

typedef enum {
  HASHKIT_SUCCESS,
  HASHKIT_FAILURE,
  HASHKIT_MEMORY_ALLOCATION_FAILURE,
  HASHKIT_INVALID_HASH,
  HASHKIT_INVALID_ARGUMENT,
  HASHKIT_MAXIMUM_RETURN
} hashkit_return_t;

typedef enum {
  HASHKIT_HASH_DEFAULT, /* one-at-a-time */
  HASHKIT_HASH_MD5,
  HASHKIT_HASH_CRC,
  HASHKIT_HASH_FNV1_64,
  HASHKIT_HASH_FNV1A_64,
  HASHKIT_HASH_FNV1_32,
  HASHKIT_HASH_FNV1A_32,
  HASHKIT_HASH_HSIEH, /* not available */
  HASHKIT_HASH_MURMUR,
  HASHKIT_HASH_JENKINS,
  HASHKIT_HASH_MURMUR3,
  HASHKIT_HASH_CUSTOM,
  HASHKIT_HASH_MAX
} hashkit_hash_algorithm_t;

typedef enum {
  HASHKIT_DISTRIBUTION_MODULA,
  HASHKIT_DISTRIBUTION_RANDOM,
  HASHKIT_DISTRIBUTION_KETAMA,
  HASHKIT_DISTRIBUTION_MAX
} hashkit_distribution_t;

typedef struct hashkit_string_st hashkit_string_st;
typedef uint32_t (*hashkit_hash_fn)(const char *key, size_t key_length, void *context);

struct hashkit_st {
  struct hashkit_function_st {
    hashkit_hash_fn function;
    void *context;
  } base_hash, distribution_hash;
  struct {
    bool is_base_same_distributed : 1;
  } flags;
  struct {
    bool is_allocated : 1;
  } options;
  void *_key;
};
typedef struct hashkit_st hashkit_st;

static inline bool hashkit_success(hashkit_return_t rc) { return rc == HASHKIT_SUCCESS; }
static inline bool hashkit_failed(hashkit_return_t rc) { return rc != HASHKIT_SUCCESS; }

HASHKIT_API hashkit_st *hashkit_create(hashkit_st *self);
HASHKIT_API hashkit_st *hashkit_clone(hashkit_st *destination, const hashkit_st *self);
HASHKIT_API bool hashkit_compare(const hashkit_st *first, const hashkit_st *second);
HASHKIT_API void hashkit_free(hashkit_st *self);
HASHKIT_API const char *hashkit_strerror(hashkit_st *self, hashkit_return_t rc);

HASHKIT_API uint32_t hashkit_digest(const hashkit_st *self, const char *key, size_t key_length);
HASHKIT_API uint32_t libhashkit_digest(const char *key, size_t key_length, hashkit_hash_algorithm_t algorithm);
HASHKIT_API uint32_t libhashkit_one_at_a_time(const char *key, size_t key_length);
HASHKIT_API uint32_t libhashkit_fnv1_64(const char *key, size_t key_length);
HASHKIT_API uint32_t libhashkit_fnv1a_64(const char *key, size_t key_length);
HASHKIT_API uint32_t libhashkit_fnv1_32(const char *key, size_t key_length);
HASHKIT_API uint32_t libhashkit_fnv1a_32(const char *key, size_t key_length);
HASHKIT_API uint32_t libhashkit_crc32(const char *key, size_t key_length);
HASHKIT_API uint32_t libhashkit_hsieh(const char *key, size_t key_length);
HASHKIT_API uint32_t libhashkit_murmur(const char *key, size_t key_length);
HASHKIT_API uint32_t libhashkit_murmur3(const char *key, size_t key_length);
HASHKIT_API uint32_t libhashkit_jenkins(const char *key, size_t key_length);
HASHKIT_API uint32_t libhashkit_md5(const char *key, size_t key_length);
HASHKIT_API void libhashkit_md5_signature(const unsigned char *key, size_t length, unsigned char *result);
HASHKIT_API bool libhashkit_has_algorithm(const hashkit_hash_algorithm_t algorithm);
HASHKIT_API const char *libhashkit_string_hash(hashkit_hash_algorithm_t algorithm);

HASHKIT_API hashkit_return_t hashkit_set_function(hashkit_st *self, hashkit_hash_algorithm_t algorithm);
HASHKIT_API hashkit_return_t hashkit_set_custom_function(hashkit_st *self, hashkit_hash_fn function, void *context);
HASHKIT_API hashkit_hash_algorithm_t hashkit_get_function(const hashkit_st *self);
HASHKIT_API hashkit_return_t hashkit_set_distribution_function(hashkit_st *self, hashkit_hash_algorithm_t algorithm);
HASHKIT_API hashkit_return_t hashkit_set_custom_distribution_function(hashkit_st *self, hashkit_hash_fn function,
                                                                      void *context);
HASHKIT_API hashkit_hash_algorithm_t hashkit_get_distribution_function(const hashkit_st *self);

HASHKIT_API bool hashkit_key(hashkit_st *self, const char *key, const size_t key_length);
HASHKIT_API hashkit_string_st *hashkit_encrypt(hashkit_st *self, const char *source, size_t source_length);
HASHKIT_API hashkit_string_st *hashkit_decrypt(hashkit_st *self, const char *source, size_t source_length);
HASHKIT_API void hashkit_string_free(hashkit_string_st *self);
HASHKIT_API size_t hashkit_string_length(const hashkit_string_st *self);
HASHKIT_API const char *hashkit_string_c_str(const hashkit_string_st *self);

#ifdef __cplusplus
}
#endif

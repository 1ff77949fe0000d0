/* The same as libmemcached-1.0/memcached.h. */
#pragma once
#include <libmemcached-1.0/memcached.h>

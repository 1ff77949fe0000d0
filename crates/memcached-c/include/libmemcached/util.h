/* The same as libmemcachedutil-1.0/util.h. */
#pragma once
#include <libmemcachedutil-1.0/util.h>

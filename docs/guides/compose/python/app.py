import os
from pymemcache.client.base import Client

cache = Client(os.environ["LARDER"], timeout=1)
cache.set("greeting", "hello", expire=60)
print(cache.get("greeting").decode())

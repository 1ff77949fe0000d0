"""Counts the pages that a visitor has seen, in a session that Django keeps in memcached, and the pages that all have
seen, in Django's cache. To be started as `python3 counter.py runserver`."""

import sys

from django.conf import settings
from django.core.cache import cache
from django.core.management import execute_from_command_line
from django.http import HttpResponse
from django.urls import path

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    CACHES={
        "default": {
            "BACKEND": "django.core.cache.backends.memcached.PyMemcacheCache",
            "LOCATION": "127.0.0.1:11211",
        }
    },
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="of a test",
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
)


def page(request):
    request.session["pages"] = request.session.get("pages", 0) + 1
    cache.add("pages", 0)
    return HttpResponse(f"page {request.session['pages']}, {cache.incr('pages')} of all\n")


urlpatterns = [path("", page)]

if __name__ == "__main__":
    execute_from_command_line(sys.argv)

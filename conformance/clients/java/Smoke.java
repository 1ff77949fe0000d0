// Exercises a server with spymemcached and the Whalin client, each in both protocols (SASL: in the binary one):
// java -cp 'lib/*' Smoke.java HOST PORT [sasl USER PASSWORD]

import com.schooner.MemCached.AuthInfo;
import com.schooner.MemCached.SchoonerSockIOPool;
import com.whalin.MemCached.MemCachedClient;
import com.whalin.MemCached.SockIOPool;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.auth.AuthDescriptor;
import net.spy.memcached.auth.PlainCallbackHandler;

public class Smoke {
    static int checks = 0;
    static String client = "";

    static void same(String what, Object got, Object want) {
        checks++;
        if (!Objects.deepEquals(got, want)) {
            System.err.printf("%s: %s: got %.200s, want %.200s%n", client, what, got, want);
            System.exit(1);
        }
    }

    public static void main(String[] args) throws Exception {
        System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SunLogger");
        Logger.getLogger("net.spy").setLevel(Level.OFF);
        String host = args[0];
        int port = Integer.parseInt(args[1]);
        String door = args.length > 2 ? args[2] : "plain";
        String[] login = door.equals("sasl") ? new String[] {args[3], args[4]} : null;

        for (boolean binary : login == null ? new boolean[] {false, true} : new boolean[] {true}) {
            String protocol = binary ? "binary" : "text";
            client = "spymemcached-" + protocol;
            spymemcached(connect(host, port, binary, login), binary, client + ":");
            client = "Whalin-" + protocol;
            whalin(host + ":" + port, binary, login, client + ":");
        }
        if (login != null) {
            client = "spymemcached with a wrong password";
            MemcachedClient wrong = connect(host, port, true, new String[] {login[0], "not " + login[1]});
            boolean refused = false;
            try {
                wrong.get("large");
            } catch (RuntimeException error) {
                refused = true;
            }
            same("get", refused, true);
            wrong.shutdown();
        }
        System.out.printf("spymemcached and Whalin, %s: %d checks%n", door, checks);
        System.exit(0);
    }

    static MemcachedClient connect(String host, int port, boolean binary, String[] login) throws Exception {
        ConnectionFactoryBuilder builder = new ConnectionFactoryBuilder()
            .setProtocol(binary ? ConnectionFactoryBuilder.Protocol.BINARY : ConnectionFactoryBuilder.Protocol.TEXT)
            .setDaemon(true)
            .setOpTimeout(10_000);
        if (login != null) {
            builder.setAuthDescriptor(
                new AuthDescriptor(new String[] {"PLAIN"}, new PlainCallbackHandler(login[0], login[1])));
            builder.setAuthWaitTime(5_000);
        }
        return new MemcachedClient(builder.build(), List.of(new InetSocketAddress(host, port)));
    }

    static void spymemcached(MemcachedClient c, boolean binary, String p) throws Exception {
        same("set", c.set(p + "a", 0, "text").get(), true);
        same("get", c.get(p + "a"), "text");
        same("get of a missing key", c.get(p + "missing"), null);
        c.delete(p + "new").get();
        same("add", c.add(p + "new", 0, "x").get(), true);
        same("add of a key that is there", c.add(p + "new", 0, "y").get(), false);
        same("replace", c.replace(p + "new", 0, "z").get(), true);
        same("replace of a missing key", c.replace(p + "missing", 0, "z").get(), false);
        same("append", c.append(p + "a", ">").get(), true);
        same("prepend", c.prepend(p + "a", "<").get(), true);
        same("what they made", c.get(p + "a"), "<text>");

        Map<String, Object> many = new HashMap<>();
        for (int i = 0; i < 500; i++) {
            many.put(p + "k" + i, "value ".repeat(i % 50) + i);
        }
        // Not waited for one by one: the client sends what it has in one go.
        var sets = many.entrySet().stream().map(e -> c.set(e.getKey(), 0, e.getValue())).toList();
        for (var set : sets) {
            same("pipelined set", set.get(), true);
        }
        List<String> keys = new ArrayList<>(many.keySet());
        keys.add(p + "missing");
        same("getBulk", c.getBulk(keys), many);

        for (Object thing : new Object[] {42, 1L << 40, 1.5, true, new byte[] {0, '\r', '\n', -1}, "käse",
                new Date(1_000_000_000_000L), new ArrayList<>(Arrays.asList("list", null))}) {
            c.set(p + "thing", 0, thing).get();
            same("a value told by its flags", c.get(p + "thing"), thing);
        }

        CASValue<Object> found = c.gets(p + "a");
        same("gets", found.getValue(), "<text>");
        same("cas", c.cas(p + "a", found.getCas(), "new"), CASResponse.OK);
        same("cas of what has changed", c.cas(p + "a", found.getCas(), "newer"), CASResponse.EXISTS);
        same("cas of a missing key", c.cas(p + "missing", found.getCas(), "x"), CASResponse.NOT_FOUND);

        c.delete(p + "n").get();
        same("incr of a missing key", c.incr(p + "n", 1), -1L);
        same("incr of a missing key sets it", c.incr(p + "n", 5, 10), 10L);
        same("incr", c.incr(p + "n", 5), 15L);
        same("decr", c.decr(p + "n", 20), 0L);

        c.set(p + "ttl", 1, "x").get();
        c.set(p + "touched", 1, "x").get();
        same("touch", c.touch(p + "touched", 100).get(), true);
        same("touch of a missing key", c.touch(p + "missing", 100).get(), false);
        if (binary) {
            same("getAndTouch", c.getAndTouch(p + "touched", 100).getValue(), "x");
            same("getAndTouch of a missing key", c.getAndTouch(p + "missing", 100), null);
        }
        Thread.sleep(2100);
        same("after its time", c.get(p + "ttl"), null);
        same("touched in time", c.get(p + "touched"), "x");

        byte[] large = new byte[768_000];
        new Random(1).nextBytes(large);
        same("a large value", c.set(p + "large", 0, large).get(), true);
        same("comes back", c.get(p + "large"), large);
        String compressed = "compress me ".repeat(80_000);
        same("a compressed value", c.set(p + "zip", 0, compressed).get(), true);
        same("comes back whole", c.get(p + "zip"), compressed);

        same("delete", c.delete(p + "a").get(), true);
        same("delete of a missing key", c.delete(p + "a").get(), false);
        same("versions", c.getVersions().size(), 1);
        Map<String, String> stats = c.getStats().values().iterator().next();
        same("stats", Long.parseLong(stats.get("curr_items")) > 0, true);
        same("shutdown", c.shutdown(5, TimeUnit.SECONDS), true);
    }

    static void whalin(String server, boolean binary, String[] login, String p) throws Exception {
        if (login == null) {
            SockIOPool pool = SockIOPool.getInstance(p);
            pool.setServers(new String[] {server});
            pool.initialize();
        } else {
            SchoonerSockIOPool pool = SchoonerSockIOPool.getInstance(p, AuthInfo.plain(login[0], login[1]));
            pool.setServers(new String[] {server});
            pool.initialize();
        }
        MemCachedClient c = new MemCachedClient(p, true, binary);

        same("set", c.set(p + "a", "text"), true);
        same("get", c.get(p + "a"), "text");
        same("get of a missing key", c.get(p + "missing"), null);
        same("keyExists", c.keyExists(p + "a"), true);
        c.delete(p + "new");
        same("add", c.add(p + "new", "x"), true);
        same("add of a key that is there", c.add(p + "new", "y"), false);
        same("replace", c.replace(p + "new", "z"), true);
        same("replace of a missing key", c.replace(p + "missing", "z"), false);
        same("append", c.append(p + "a", ">"), true);
        same("prepend", c.prepend(p + "a", "<"), true);
        same("what they made", c.get(p + "a"), "<text>");

        Map<String, Object> many = new HashMap<>();
        for (int i = 0; i < 100; i++) {
            many.put(p + "k" + i, "value " + i);
            same("set of many", c.set(p + "k" + i, "value " + i), true);
        }
        same("getMulti", c.getMulti(many.keySet().toArray(new String[0])), many);

        // Type in the flags; and a serialized object.
        for (Object thing : new Object[] {42, 1L << 40, 1.5, true, new byte[] {0, '\r', '\n', -1}, "käse",
                new ArrayList<>(Arrays.asList("list", null))}) {
            c.set(p + "thing", thing);
            same("a value told by its flags", c.get(p + "thing"), thing);
        }

        var found = c.gets(p + "a");
        same("cas", c.cas(p + "a", "new", found.casUnique), true);
        same("cas of what has changed", c.cas(p + "a", "newer", found.casUnique), false);
        same("what is left", c.get(p + "a"), "new");

        c.delete(p + "n");
        same("addOrIncr", c.addOrIncr(p + "n", 10), 10L);
        same("incr", c.incr(p + "n", 5), 15L);
        same("getCounter", c.getCounter(p + "n"), 15L);
        same("decr", c.decr(p + "n", 20), 0L);

        c.set(p + "ttl", "x", new Date(1000));
        Thread.sleep(2100);
        same("after its time", c.get(p + "ttl"), null);

        byte[] large = new byte[768_000];
        new Random(1).nextBytes(large);
        same("a large value", c.set(p + "large", large), true);
        same("comes back", c.get(p + "large"), large);
        same("delete", c.delete(p + "a"), true);
        same("is gone", c.get(p + "a"), null);
        same("stats", c.stats().get(server).containsKey("curr_items"), true);
    }
}

// Asks as spymemcached and the Whalin client were asked when they were compared in 2008: threads that share one client,
// 90 % bulk gets, 10 % sets, each waited for.
//
// java -cp 'lib/*' Bench.java spymemcached|whalin HOST:PORT[,HOST:PORT...] OBJECTS MIN_BYTES MAX_BYTES KEYS_PER_GET \
//     SECS THREADS...
//
// Stores all objects, warms up, says "ready", and then a line for each number of threads:
// THREADS OPERATIONS_PER_SEC SET_MILLIS GET_MILLIS CPU_SECS_PER_SEC MISSES

import com.sun.management.OperatingSystemMXBean;
import com.whalin.MemCached.MemCachedClient;
import com.whalin.MemCached.SockIOPool;
import java.lang.management.ManagementFactory;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.logging.Level;
import java.util.logging.Logger;
import net.spy.memcached.AddrUtil;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.transcoders.WhalinTranscoder;

public class Bench {
    // Waits for the answer.
    interface Client {
        void set(String key, String value) throws Exception;

        // How many were found.
        int get(List<String> keys) throws Exception;
    }

    record Figures(long sets, long setNanos, long gets, long getNanos, long misses) {
        Figures add(Figures other) {
            return new Figures(sets + other.sets, setNanos + other.setNanos, gets + other.gets,
                getNanos + other.getNanos, misses + other.misses);
        }
    }

    static int objects;
    static int keysPerGet;
    static String[] keys;
    static String[] values;

    public static void main(String[] args) {
        try {
            run(args);
            System.exit(0);
        } catch (Throwable failure) {
            // The threads of pools and clients would otherwise keep the virtual machine running for ever.
            failure.printStackTrace();
            System.exit(1);
        }
    }

    static void run(String[] args) throws Exception {
        System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SunLogger");
        Logger.getLogger("net.spy").setLevel(Level.OFF);
        objects = Integer.parseInt(args[2]);
        keys = new String[objects];
        Arrays.setAll(keys, number -> String.format("key:%012d", number));
        values = values(Integer.parseInt(args[3]), Integer.parseInt(args[4]));
        keysPerGet = Integer.parseInt(args[5]);
        double secs = Double.parseDouble(args[6]);
        Client client = args[0].equals("spymemcached") ? spymemcached(args[1]) : whalin(args[1].split(","));

        inParallel(8, thread -> {
            for (int number = thread; number < objects; number += 8) {
                client.set(keys[number], value(number));
            }
            return new Figures(0, 0, 0, 0, 0);
        });
        ask(client, 10, 3); // the virtual machine compiles what is called often
        System.out.println("ready");
        for (String threads : Arrays.asList(args).subList(7, args.length)) {
            OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
            long cpu = system.getProcessCpuTime();
            long start = System.nanoTime();
            Figures figures = ask(client, Integer.parseInt(threads), secs);
            double elapsed = (System.nanoTime() - start) / 1e9;
            System.out.printf("%s %.1f %.3f %.3f %.3f %d%n", threads, (figures.sets + figures.gets) / elapsed,
                figures.setNanos / 1e6 / Math.max(1, figures.sets), figures.getNanos / 1e6 / Math.max(1, figures.gets),
                (system.getProcessCpuTime() - cpu) / 1e9 / elapsed, figures.misses);
        }
    }

    static Figures ask(Client client, int threads, double secs) throws Exception {
        long end = System.nanoTime() + (long) (secs * 1e9);
        return inParallel(threads, thread -> {
            ThreadLocalRandom random = ThreadLocalRandom.current();
            Figures figures = new Figures(0, 0, 0, 0, 0);
            for (long now = System.nanoTime(); now < end;) {
                if (random.nextInt(10) == 0) {
                    int number = random.nextInt(objects);
                    client.set(keys[number], value(number));
                    long then = System.nanoTime();
                    figures = figures.add(new Figures(1, then - now, 0, 0, 0));
                    now = then;
                } else {
                    // Distinct without a set, as in load.rs.
                    List<String> asked = new ArrayList<>(keysPerGet);
                    int first = random.nextInt(objects);
                    int step = 1 + random.nextInt(objects / keysPerGet);
                    for (int n = 0; n < keysPerGet; n++) {
                        asked.add(keys[(int) ((first + (long) n * step) % objects)]);
                    }
                    int missing = keysPerGet - client.get(asked);
                    long then = System.nanoTime();
                    figures = figures.add(new Figures(0, 0, 1, then - now, missing));
                    now = then;
                }
            }
            return figures;
        });
    }

    interface Work {
        Figures of(int thread) throws Exception;
    }

    static Figures inParallel(int threads, Work work) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        List<Callable<Figures>> tasks = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            int thread = i;
            tasks.add(() -> work.of(thread));
        }
        Figures all = new Figures(0, 0, 0, 0, 0);
        for (Future<Figures> future : pool.invokeAll(tasks)) {
            all = all.add(future.get());
        }
        pool.shutdown();
        return all;
    }

    static String value(int number) {
        return values[number % values.length];
    }

    // Text that compresses well, as the objects of 2009 did.
    static String[] values(int minBytes, int maxBytes) {
        String[] values = new String[101];
        for (int i = 0; i < values.length; i++) {
            int bytes = minBytes + (maxBytes - minBytes) * i / (values.length - 1);
            values[i] = "larder ".repeat(bytes / 7 + 1).substring(0, bytes);
        }
        return values;
    }

    static Client spymemcached(String servers) throws Exception {
        ConnectionFactoryBuilder builder = new ConnectionFactoryBuilder()
            .setTranscoder(new WhalinTranscoder())
            .setDaemon(true)
            .setOpTimeout(60_000);
        List<InetSocketAddress> addresses = AddrUtil.getAddresses(servers.replace(',', ' '));
        MemcachedClient client = new MemcachedClient(builder.build(), addresses);
        return new Client() {
            public void set(String key, String value) throws Exception {
                if (!client.set(key, 0, value).get()) {
                    throw new IllegalStateException("a set failed");
                }
            }

            public int get(List<String> keys) {
                return client.getBulk(keys).size();
            }
        };
    }

    static Client whalin(String[] servers) {
        SockIOPool pool = SockIOPool.getInstance("bench");
        pool.setServers(servers);
        pool.setMaxConn(100);
        pool.initialize();
        MemCachedClient client = new MemCachedClient("bench", true, false);
        return new Client() {
            public void set(String key, String value) {
                if (!client.set(key, value)) {
                    throw new IllegalStateException("a set failed");
                }
            }

            public int get(List<String> keys) {
                Map<String, Object> found = client.getMulti(keys.toArray(new String[0]));
                return (int) found.values().stream().filter(v -> v != null).count();
            }
        };
    }
}

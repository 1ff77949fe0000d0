// The clients of Java: `java -cp 'JARS/*' Values.java CLIENT write|read PORT`. See ../README.md.

import com.whalin.MemCached.MemCachedClient;
import com.whalin.MemCached.SockIOPool;
import java.io.ByteArrayOutputStream;
import java.io.ObjectOutputStream;
import java.io.Serializable;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Date;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Scanner;
import java.util.zip.CRC32;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.transcoders.SerializingTranscoder;
import net.spy.memcached.transcoders.Transcoder;
import net.spy.memcached.transcoders.WhalinTranscoder;
import net.spy.memcached.transcoders.WhalinV1Transcoder;

class Values {
    interface Client {
        void put(String name, Object value) throws Exception;

        Object get(String name);
    }

    public static void main(String[] args) throws Exception {
        System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SunLogger");
        java.util.logging.LogManager.getLogManager().reset();
        String name = args[0];
        Client client = name.equals("whalin") ? whalin(args[2]) : spymemcached(name, args[2]);
        if (args[1].equals("read")) {
            read(name, client);
        } else {
            write(name, client);
        }
        System.exit(0);
    }

    static void read(String clientName, Client client) {
        Scanner input = new Scanner(System.in);
        while (input.hasNextLine()) {
            String name = input.nextLine().trim();
            System.out.println(name + "\t" + describe(clientName, client.get(name)));
        }
    }

    static void write(String clientName, Client client) throws Exception {
        String version = clientName.equals("whalin")
                ? "Memcached-Java-Client 3.0.2"
                : "spymemcached 2.12.3 with " + transcoder(clientName).getClass().getSimpleName();
        System.out.println("# " + version + ", Java " + System.getProperty("java.version"));
        Map<String, Object> values = new LinkedHashMap<>();
        values.put("empty", "");
        values.put("ascii", "abc");
        values.put("text", "grüße");
        values.put("bytes", new byte[] {0, -1, -128, 13, 10});
        for (int value : new int[] {0, 1, -1, 300, Integer.MAX_VALUE, Integer.MIN_VALUE}) {
            values.put("int" + value, value);
        }
        for (long value : new long[] {0, 42, -1, 1L << 40, Long.MAX_VALUE, Long.MIN_VALUE}) {
            values.put("long" + value, value);
        }
        values.put("short", (short) -300);
        values.put("byte", (byte) -7);
        values.put("char", 'ü');
        values.put("float", 1.5f);
        values.put("double", -0.1);
        values.put("true", true);
        values.put("false", false);
        values.put("date", new Date(1_234_567_890_123L));
        values.put("builder", new StringBuilder("abc"));
        values.put("buffer", new StringBuffer("abc"));
        values.put("list", new ArrayList<>(Collections.nCopies(3, "a row")));
        for (Map.Entry<String, Object> entry : values.entrySet()) {
            Object value = entry.getValue();
            store(client, entry.getKey(), value, describe(clientName, value));
        }
        StringBuilder lines = new StringBuilder();
        for (int i = 0; i < 400; i++) {
            lines.append("line ").append(i).append('\n');
        }
        String text = lines.toString().repeat(10);
        // It compresses nothing since its version 3.
        if (!clientName.equals("whalin")) {
            store(client, "lines-gzip", text, "text @lines 400 10");
            byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
            boolean isSerialized = isSerialized(clientName, bytes);
            store(client, "bytes-gzip", bytes, isSerialized ? serialized(bytes) : "bytes @lines 400 10");
            Object rows = new ArrayList<>(Collections.nCopies(10_000, "a row"));
            store(client, "rows-gzip", rows, serialized(rows));
        }
    }

    static void store(Client client, String name, Object value, String described) throws Exception {
        client.put(name, value);
        System.out.println(name + "\t" + described);
    }

    /** Whether this client has no flags for such a value, and serializes it. */
    static boolean isSerialized(String clientName, Object value) {
        if (clientName.startsWith("whalin")) {
            return clientName.contains("v1") && value instanceof byte[];
        }
        boolean isText = value instanceof StringBuilder || value instanceof StringBuffer;
        return isText || value instanceof Short || value instanceof Character;
    }

    static String describe(String clientName, Object value) {
        if (isSerialized(clientName, value)) {
            return serialized(value);
        } else if (value instanceof String || value instanceof StringBuilder || value instanceof StringBuffer
                || value instanceof Character) {
            return ("text " + hex(value.toString().getBytes(StandardCharsets.UTF_8))).trim();
        } else if (value instanceof byte[] bytes) {
            return ("bytes " + hex(bytes)).trim();
        } else if (value instanceof Float || value instanceof Double) {
            return "float " + value;
        } else if (value instanceof Number) {
            return "integer " + value;
        } else if (value instanceof Boolean) {
            return "bool " + value;
        } else if (value instanceof Date date) {
            return "date " + date.getTime();
        } else {
            return serialized(value);
        }
    }

    static String serialized(Object value) {
        try {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            ObjectOutputStream objects = new ObjectOutputStream(bytes);
            objects.writeObject(value);
            objects.close();
            if (bytes.size() <= 100) {
                return "serialized java " + hex(bytes.toByteArray());
            }
            CRC32 crc = new CRC32();
            crc.update(bytes.toByteArray());
            return String.format("serialized java @crc %d %08x", bytes.size(), crc.getValue());
        } catch (java.io.IOException error) {
            throw new IllegalStateException(error);
        }
    }

    static String hex(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }

    static Transcoder<Object> transcoder(String name) {
        return switch (name) {
            case "spymemcached" -> new SerializingTranscoder();
            case "whalin-transcoder" -> new WhalinTranscoder();
            case "whalin-v1-transcoder" -> new WhalinV1Transcoder();
            default -> throw new IllegalArgumentException(name);
        };
    }

    static Client spymemcached(String name, String port) throws Exception {
        MemcachedClient client = new MemcachedClient(new InetSocketAddress("127.0.0.1", Integer.parseInt(port)));
        Transcoder<Object> transcoder = transcoder(name);
        return new Client() {
            public void put(String key, Object value) throws Exception {
                if (!client.set(key, 0, value, transcoder).get()) {
                    throw new IllegalStateException(key + " is not stored");
                }
            }

            public Object get(String key) {
                return client.get(key, transcoder);
            }
        };
    }

    static Client whalin(String port) {
        SockIOPool pool = SockIOPool.getInstance();
        pool.setServers(new String[] {"127.0.0.1:" + port});
        pool.initialize();
        MemCachedClient client = new MemCachedClient();
        return new Client() {
            public void put(String key, Object value) {
                if (!client.set(key, (Serializable) value)) {
                    throw new IllegalStateException(key + " is not stored");
                }
            }

            public Object get(String key) {
                return client.get(key);
            }
        };
    }
}

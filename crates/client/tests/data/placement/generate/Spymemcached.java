import java.io.*;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.*;
import java.util.*;
import net.spy.memcached.*;

/**
 * Prints the server that a locator of spymemcached chooses for each key of standard input (in hexadecimal), or its
 * hash. Arguments: hash ALGORITHM; or SERVERS modula|ketama ALGORITHM [FORMAT [weighted]]. Servers are
 * HOST:PORT:WEIGHT; the property "dead" names one that is down. "-": no Java string is encoded so.
 */
public class Spymemcached {
  public static void main(String[] args) throws Exception {
    if (args[0].equals("hash")) {
      DefaultHashAlgorithm algorithm = DefaultHashAlgorithm.valueOf(args[1]);
      for (String key : keys()) System.out.println(key == null ? "-" : String.format("%08x", algorithm.hash(key)));
      return;
    }
    List<MemcachedNode> nodes = new ArrayList<>();
    Map<MemcachedNode, String> names = new IdentityHashMap<>();
    Map<InetSocketAddress, Integer> weights = new HashMap<>();
    for (String server : args[0].split(",")) {
      String[] parts = server.split(":");
      InetSocketAddress address = new InetSocketAddress(parts[0], Integer.parseInt(parts[1]));
      MemcachedNode node = node(address);
      nodes.add(node);
      names.put(node, parts[0] + ":" + parts[1]);
      if (args.length > 4) weights.put(address, Integer.valueOf(parts[2]));
    }
    HashAlgorithm hash = DefaultHashAlgorithm.valueOf(args[2]);
    NodeLocator locator = args[1].equals("modula")
        ? new ArrayModNodeLocator(nodes, hash)
        : new KetamaNodeLocator(nodes, hash, KetamaNodeKeyFormatter.Format.valueOf(args[3]), weights);
    String dead = System.getProperty("dead", "");
    for (String key : keys()) System.out.println(key == null ? "-" : names.get(node(locator, names, key, dead)));
  }

  /** As MemcachedConnection.addOperation does with FailureMode.Redistribute. */
  private static MemcachedNode node(
      NodeLocator locator, Map<MemcachedNode, String> names, String key, String dead) {
    MemcachedNode primary = locator.getPrimary(key);
    if (!names.get(primary).equals(dead)) return primary;
    for (Iterator<MemcachedNode> nodes = locator.getSequence(key); nodes.hasNext(); ) {
      MemcachedNode node = nodes.next();
      if (!names.get(node).equals(dead)) return node;
    }
    return primary;
  }

  /** A node without a connection. */
  private static MemcachedNode node(SocketAddress address) {
    InvocationHandler handler = (proxy, method, arguments) -> switch (method.getName()) {
      case "getSocketAddress" -> address;
      case "hashCode" -> System.identityHashCode(proxy);
      case "equals" -> proxy == arguments[0];
      case "toString" -> address.toString();
      default -> throw new UnsupportedOperationException(method.getName());
    };
    Class<?>[] interfaces = {MemcachedNode.class};
    return (MemcachedNode) Proxy.newProxyInstance(MemcachedNode.class.getClassLoader(), interfaces, handler);
  }

  static List<String> keys() throws IOException {
    List<String> keys = new ArrayList<>();
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      try {
        ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(line));
        keys.add(StandardCharsets.UTF_8.newDecoder().decode(bytes).toString());
      } catch (CharacterCodingException notUtf8) {
        keys.add(null);
      }
    }
    return keys;
  }
}

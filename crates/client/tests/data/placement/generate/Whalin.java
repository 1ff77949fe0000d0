import com.schooner.MemCached.*;
import java.util.*;

/**
 * Prints the server that the pool of Whalin's client chooses for each key of standard input (in hexadecimal).
 * Arguments: SERVERS native|old|new|consistent [weighted]. Servers are HOST:PORT:WEIGHT.
 */
public class Whalin {
  public static void main(String[] args) throws Exception {
    String[] servers = args[0].split(",");
    Integer[] weights = new Integer[servers.length];
    for (int n = 0; n < servers.length; n++) {
      int end = servers[n].lastIndexOf(':');
      weights[n] = Integer.valueOf(servers[n].substring(end + 1));
      servers[n] = servers[n].substring(0, end);
    }
    SchoonerSockIOPool pool = SchoonerSockIOPool.getInstance("placement");
    pool.setServers(servers);
    if (args.length > 2) pool.setWeights(weights);
    pool.setHashingAlg(switch (args[1]) {
      case "native" -> SchoonerSockIOPool.NATIVE_HASH;
      case "old" -> SchoonerSockIOPool.OLD_COMPAT_HASH;
      case "new" -> SchoonerSockIOPool.NEW_COMPAT_HASH;
      default -> SchoonerSockIOPool.CONSISTENT_HASH;
    });
    pool.initialize();
    for (String key : Spymemcached.keys()) {
      if (key == null) {
        System.out.println("-");
        continue;
      }
      SchoonerSockIO connection = pool.getSock(key);
      System.out.println(connection.getHost());
      connection.close();
    }
    System.exit(0);
  }
}

import net.spy.memcached.AddrUtil;
import net.spy.memcached.MemcachedClient;

class App {
    public static void main(String[] args) throws Exception {
        var cache = new MemcachedClient(AddrUtil.getAddresses(System.getenv("LARDER")));
        cache.set("greeting", 60, "hello").get();
        System.out.println(cache.get("greeting"));
        cache.shutdown();
    }
}

package org.kelix.bench;

import org.kelix.Kelix;
import org.kelix.Session;
import org.kelix.Table;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/**
 * The child of `kelix bench languages` that gets from Java: `Get DIRECTORY RECORDS`. It prints
 * `ready`. Then each line names a way of getting, `get`, `get_direct` or `get_into`, and is
 * answered by how many gets these were and how many nanoseconds they took. Values are verified as
 * bench/src/store.rs does it.
 */
public final class Get {
    private static final int BLOCK = 1 << 14;
    private static final int DRAWN = 1 << 20;
    private static final int WARM_UP_BLOCKS = 128;
    private static final int KEY_BYTES = 16;
    private static final int VALUE_BYTES = 32;
    private static final VarHandle LONG =
            MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

    private final Session session;
    private final Table table;
    private final long[] records = new long[DRAWN];

    /**
     * The key is made of the record's number before each get, as in the loop of the Rust client.
     */
    private final byte[] key = new byte[KEY_BYTES];

    private final ByteBuffer directKey = direct(KEY_BYTES);
    private final ByteBuffer directValue = direct(64);
    private final byte[] value = new byte[64];
    private int next;

    private Get(Session session, long count) {
        this.session = session;
        table = session.table("records");
        byte[] user = "user0000".getBytes(StandardCharsets.US_ASCII);
        System.arraycopy(user, 0, key, 0, user.length);
        directKey.put(0, user);
        long state = 7;
        for (int index = 0; index < DRAWN; index++) {
            // Splitmix64, and the upper half of the product with `count`: numbers below it, all
            // alike.
            state += 0x9e3779b97f4a7c15L;
            long mixed = (state ^ state >>> 30) * 0xbf58476d1ce4e5b9L;
            mixed = (mixed ^ mixed >>> 27) * 0x94d049bb133111ebL;
            mixed ^= mixed >>> 31;
            records[index] = Math.multiplyHigh(mixed, count) + (mixed >> 63 & count);
        }
    }

    private static ByteBuffer direct(int bytes) {
        return ByteBuffer.allocateDirect(bytes).order(ByteOrder.LITTLE_ENDIAN);
    }

    private static void verify(int bytes, long following, long own, long both, long record) {
        if (bytes != VALUE_BYTES) {
            throw new IllegalStateException("record " + record + " has " + bytes + " bytes");
        }
        if (own != record || both != (following ^ record)) {
            throw new IllegalStateException("record " + record + " has the value of another");
        }
    }

    private static void verify(int bytes, byte[] found, long record) {
        long following = (long) LONG.get(found, 0);
        verify(bytes, following, (long) LONG.get(found, 8), (long) LONG.get(found, 16), record);
    }

    private void get() {
        for (int index = next; index < next + BLOCK; index++) {
            LONG.set(key, 8, records[index]);
            byte[] found = session.get(table, key);
            verify(found.length, found, records[index]);
        }
    }

    private void getDirect() {
        for (int index = next; index < next + BLOCK; index++) {
            directKey.putLong(8, records[index]);
            int bytes = session.get(table, directKey, directValue.clear());
            long following = directValue.getLong(0);
            verify(bytes, following, directValue.getLong(8), directValue.getLong(16), records[index]);
        }
    }

    private void getInto() {
        for (int index = next; index < next + BLOCK; index++) {
            LONG.set(key, 8, records[index]);
            int bytes = session.get(table, key, value);
            verify(bytes, value, records[index]);
        }
    }

    /** Runs a block. Returns nanoseconds. */
    private long block(String way) {
        long begun = System.nanoTime();
        switch (way) {
            case "get" -> get();
            case "get_direct" -> getDirect();
            case "get_into" -> getInto();
            default -> throw new IllegalArgumentException("there is no way `" + way + "` to get");
        }
        long taken = System.nanoTime() - begun;
        next = (next + BLOCK) % DRAWN;
        return taken;
    }

    /**
     * Runs blocks as standard input asks for them.
     *
     * @param arguments the run directory of the server, and how many records there are
     * @throws IOException standard input cannot be read
     */
    public static void main(String[] arguments) throws IOException {
        try (Kelix kelix = Kelix.connect(arguments[0]);
                Session session = kelix.session()) {
            Get get = new Get(session, Long.parseLong(arguments[1]));
            for (int block = 0; block < WARM_UP_BLOCKS; block++) {
                get.block("get");
                get.block("get_direct");
                get.block("get_into");
            }
            System.out.println("ready");
            System.out.flush();
            BufferedReader lines =
                    new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
            for (String way = lines.readLine(); way != null; way = lines.readLine()) {
                System.out.println(BLOCK + " " + get.block(way));
                System.out.flush();
            }
        }
    }
}

package org.kelix;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;

/** What a session's submitted operations have come to. */
final class Completions {
    private static final int COMPLETION_BYTES = 48;

    /** A poll tells no more than this at once, whatever it is asked for. */
    private static final int MOST = 1024;

    private Completions() {}

    /** What has ended. Nothing: something is under way. Null: nothing is. */
    static List<Completion> poll(Session session, Core core, int most) {
        Block block = core.block;
        int asked = Math.min(most, MOST);
        int start = block.begin((long) asked * COMPLETION_BYTES, 1).take(asked * COMPLETION_BYTES);
        int code = block.set(1, block.addressOf(start)).set(2, asked).must(Op.POLL);
        int count = (int) block.out(0);
        if (count == 0) {
            return code == 1 ? null : List.of();
        }
        // Further calls use the block themselves.
        byte[] copied = new byte[count * COMPLETION_BYTES];
        block.data().get(start, copied);
        ByteBuffer completions = ByteBuffer.wrap(copied).order(ByteOrder.nativeOrder());
        List<Completion> ended = new ArrayList<>(count);
        for (int index = 0; index < count; index++) {
            ended.add(completion(session, core, completions, index));
        }
        return ended;
    }

    private static Completion completion(
            Session session, Core core, ByteBuffer completions, int index) {
        Block block = core.block;
        int at = index * COMPLETION_BYTES;
        long number = completions.getLong(at);
        Completion.Kind kind = Completion.Kind.values()[completions.getInt(at + 8)];
        int result = completions.getInt(at + 12);
        long version = completions.getLong(at + 16);
        if (kind == Completion.Kind.FAILED) {
            KelixException error =
                    block.set(1, index).must(Op.COMPLETION_ERROR) == 0
                            ? block.error((int) block.out(0))
                            : block.error(result);
            return new Completion(number, kind, false, 0, List.of(), null, error);
        }
        long count = completions.getLong(at + 40);
        List<Item> items = new ArrayList<>((int) count);
        for (int item = 0; item < count; item++) {
            long room = core.spare(Handle.Kind.ITEM);
            if (block.set(1, index).set(2, item).set(3, room).must(Op.COMPLETION_ITEM) == 0) {
                items.add(core.item());
            }
        }
        Cursor rest = null;
        if (kind == Completion.Kind.PAGE && block.set(1, index).must(Op.COMPLETION_SCAN) == 0) {
            rest = new Cursor(session, block.out(0), List.of());
        }
        boolean done = kind == Completion.Kind.PAGE || result == 0;
        return new Completion(number, kind, done, version, items, rest, null);
    }

    /**
     * Waits until something may have ended, another descriptor is readable, or so many nanoseconds
     * are over.
     */
    static void await(Core core, int other, long nanoseconds) {
        // An operation that is not answered in time ends with a poll after that, which no
        // descriptor tells.
        long milliseconds = Math.min(50, nanoseconds / 1_000_000 + 1);
        core.block.must(Op.DESCRIPTOR);
        core.block.set(1, core.block.out(0)).set(2, other).set(3, milliseconds);
        core.block.must(Op.WAIT);
    }
}

package org.kelix.test;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertTrue;
import static org.kelix.test.Support.bytes;
import static org.kelix.test.Support.fails;
import static org.kelix.test.Support.text;
import static org.kelix.test.Support.until;

import org.junit.AfterClass;
import org.junit.BeforeClass;
import org.junit.Test;
import org.kelix.ErrorKind;
import org.kelix.Kelix;
import org.kelix.KelixException;
import org.kelix.NoSuchTableException;
import org.kelix.Options;
import org.kelix.Session;
import org.kelix.Table;
import org.kelix.TableKind;
import org.kelix.UnavailableException;

import java.time.Duration;
import java.util.Optional;

/** Sessions on a mirror: what they tell of it, and what their options have them read. */
public class MirrorTest {
    private static final byte[] K = bytes("k");
    private static Server server;
    private static Server mirror;

    @BeforeClass
    public static void serve() {
        server = new Server();
        mirror = server.mirror();
    }

    @AfterClass
    public static void end() {
        mirror.close();
        server.close();
    }

    private static Options options() {
        return new Options().address(mirror.address()).timeout(Duration.ofSeconds(20));
    }

    /** What others have made comes to the mirror after a while. */
    private static Table table(Session session, String name) throws InterruptedException {
        Table[] found = new Table[1];
        until(
                "the mirror has the table",
                () -> {
                    try {
                        found[0] = session.table(name);
                    } catch (NoSuchTableException | UnavailableException notYet) {
                        return false;
                    }
                    return true;
                });
        return found[0];
    }

    private static boolean isStale(Session session, Table table) {
        try {
            session.get(table, K);
            return false;
        } catch (KelixException error) {
            assertEquals(error.toString(), ErrorKind.UNAVAILABLE, error.kind());
            return true;
        }
    }

    @Test
    public void sessionsTellWhereTheyAre() {
        try (Kelix near = Kelix.connect(mirror.address());
                Kelix far = Kelix.connect(server.address());
                Session here = near.session();
                Session there = far.session()) {
            assertTrue(here.isMirror());
            assertEquals(Optional.of(server.tcp()), here.primary());
            assertFalse(here.lag().orElseThrow().isNegative());
            assertFalse(there.isMirror());
            assertEquals(Optional.empty(), there.primary());
            assertEquals(Optional.empty(), there.lag());
        }
        fails(ErrorKind.INVALID_ARGUMENT, () -> new Options().maxLag(Duration.ZERO));
        fails(ErrorKind.INVALID_ARGUMENT, () -> new Options().maxLag(null));
    }

    @Test
    public void optionsSayWhichOfTheTwoIsRead() throws InterruptedException {
        try (Kelix usual = Kelix.connect(options());
                Kelix without = Kelix.connect(options().ownWrites(false));
                Kelix strict = Kelix.connect(options().strict(true));
                Kelix limited = Kelix.connect(options().maxLag(Duration.ofMillis(200)));
                Session writer = usual.session();
                Session here = without.session();
                Session there = strict.session();
                Session fresh = limited.session()) {
            Table table = writer.create("options", TableKind.HASH);
            writer.put(table, K, bytes("old"));
            Table hereTable = table(here, "options");
            Table thereTable = table(there, "options");
            Table freshTable = table(fresh, "options");
            until("the mirror has it", () -> "old".equals(text(here.get(hereTable, K))));
            // A mirror that stands still does not have what is written now.
            mirror.standStill();
            writer.put(table, K, bytes("new"));
            assertEquals("new", text(writer.get(table, K)));
            assertEquals("new", text(there.get(thereTable, K)));
            assertEquals("old", text(here.get(hereTable, K)));
            until("it is too old for some", () -> isStale(fresh, freshTable));
            mirror.goOn();
            until("the mirror has it", () -> "new".equals(text(here.get(hereTable, K))));
            // Without its primary a mirror shows what it has.
            server.standStill();
            assertEquals("new", text(here.get(hereTable, K)));
            until("it is too old for some", () -> isStale(fresh, freshTable));
            server.goOn();
        }
    }
}

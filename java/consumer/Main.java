package shop;

import org.kelix.Kelix;
import org.kelix.Session;
import org.kelix.Table;
import org.kelix.TableKind;

import java.nio.charset.StandardCharsets;

/** A program that uses the client and nothing else of this repository. */
public final class Main {
    private Main() {}

    /**
     * Puts a value and prints it.
     *
     * @param arguments the run directory of a server
     */
    public static void main(String[] arguments) {
        byte[] key = "ada".getBytes(StandardCharsets.UTF_8);
        try (Kelix kelix = Kelix.connect(arguments[0]);
                Session session = kelix.session()) {
            Table people = session.create("people", TableKind.HASH);
            session.put(people, key, "Lovelace".getBytes(StandardCharsets.UTF_8));
            System.out.println(new String(session.get(people, key), StandardCharsets.UTF_8));
        }
    }
}

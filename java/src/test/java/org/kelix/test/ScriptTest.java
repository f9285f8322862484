package org.kelix.test;

import static org.junit.Assert.assertEquals;

import org.junit.Test;
import org.kelix.Arrival;
import org.kelix.Attribute;
import org.kelix.Build;
import org.kelix.Compared;
import org.kelix.Completion;
import org.kelix.Cursor;
import org.kelix.Frontier;
import org.kelix.Item;
import org.kelix.Kelix;
import org.kelix.KelixException;
import org.kelix.Keys;
import org.kelix.NewItem;
import org.kelix.NewTable;
import org.kelix.PutOptions;
import org.kelix.Rows;
import org.kelix.Scan;
import org.kelix.Session;
import org.kelix.Table;
import org.kelix.TableKind;
import org.kelix.View;
import org.kelix.Walk;
import org.kelix.Walker;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** The script of operations that each language's binding runs, tests/script/operations.txt. */
public class ScriptTest {
    private static final String ABSENT = "absent";

    @Test
    public void overSharedMemory() throws Exception {
        try (Server server = new Server()) {
            run(server.address(), "shm");
        }
    }

    @Test
    public void overTcp() throws Exception {
        try (Server server = new Server()) {
            run(server.tcp(), "tcp");
        }
    }

    private static void run(String address, String fabric) throws Exception {
        Path script = Path.of(System.getenv("KELIX_SCRIPT"));
        List<String> wrong = new ArrayList<>();
        int lines = 0;
        try (Kelix kelix = Kelix.connect(address);
                Session session = kelix.session()) {
            assertEquals(fabric, session.fabric());
            Runner runner = new Runner(session);
            for (String line : Files.readAllLines(script, StandardCharsets.UTF_8)) {
                if (line.isEmpty() || line.startsWith("#")) {
                    continue;
                }
                lines++;
                String why = runner.check(line);
                if (why != null) {
                    wrong.add(line + "\n    " + why);
                }
            }
        }
        assertEquals(String.join("\n", wrong), 0, wrong.size());
        System.out.println("      " + lines + " lines of the script over " + fabric);
    }

    /** Bytes as text in which each character is a byte. */
    private static String word(byte[] bytes) {
        return bytes == null ? ABSENT : new String(bytes, StandardCharsets.ISO_8859_1);
    }

    private static byte[] raw(String word) {
        return word.getBytes(StandardCharsets.ISO_8859_1);
    }

    private static byte[] pattern(int count) {
        byte[] bytes = new byte[count];
        for (int at = 0; at < count; at++) {
            bytes[at] = (byte) (at ^ at >> 8 ^ at >> 16);
        }
        return bytes;
    }

    private static String expand(String word) {
        String[] parts = word.split(":");
        if (parts.length == 2 && parts[0].equals("pattern")) {
            return word(pattern(Integer.parseInt(parts[1])));
        }
        if (parts.length == 3 && parts[0].equals("tail")) {
            int count = Integer.parseInt(parts[1]);
            return word(
                    Arrays.copyOfRange(pattern(count), count - Integer.parseInt(parts[2]), count));
        }
        if (parts.length == 2 && parts[0].equals("long-key")) {
            return "k".repeat(Integer.parseInt(parts[1]));
        }
        return word;
    }

    private static List<String> words(String line) {
        List<String> words = new ArrayList<>();
        int at = 0;
        while (at < line.length()) {
            char first = line.charAt(at);
            if (first == ' ') {
                at++;
            } else if (first == '"') {
                ByteArrayOutputStream word = new ByteArrayOutputStream();
                for (at++; line.charAt(at) != '"'; at++) {
                    char next = line.charAt(at);
                    if (next != '\\') {
                        word.write(next);
                    } else if (line.charAt(++at) == 'x') {
                        word.write(Integer.parseInt(line.substring(at + 1, at + 3), 16));
                        at += 2;
                    } else {
                        word.write(line.charAt(at));
                    }
                }
                at++;
                words.add(word(word.toByteArray()));
            } else {
                int end = line.indexOf(' ', at);
                end = end < 0 ? line.length() : end;
                words.add(expand(line.substring(at, end)));
                at = end;
            }
        }
        return words;
    }

    private static final class Runner {
        private final Session session;
        private final Map<String, Table> tables = new HashMap<>();
        private final Map<String, Long> versions = new HashMap<>();
        private final Map<String, View> views = new HashMap<>();
        private Build build;
        private final Map<String, TableKind> built = new HashMap<>();

        Runner(Session session) {
            this.session = session;
        }

        private Table table(String name) {
            Table table = tables.get(name);
            if (table == null) {
                table = session.table(name);
                tables.put(name, table);
            }
            return table;
        }

        private static byte[] key(TableKind kind, String word) {
            boolean isNumber = kind.hasNumbers() && word.matches("[0-9]+");
            return isNumber ? Keys.of(Long.parseUnsignedLong(word)) : raw(word);
        }

        private static String shown(Table table, byte[] key) {
            return table.kind().hasNumbers() ? Long.toUnsignedString(Keys.number(key)) : word(key);
        }

        private static TableKind kind(String word) {
            return TableKind.valueOf(word.toUpperCase(Locale.ROOT));
        }

        private long version(String word) {
            return word.equals(ABSENT) ? Session.ABSENT : versions.get(word);
        }

        private static String told(long version) {
            return version == Session.ABSENT ? ABSENT : Long.toString(version);
        }

        private static List<String> some(List<String> words) {
            return words.isEmpty() ? List.of("nothing") : words;
        }

        private static List<String> yes(boolean isSo) {
            return List.of(isSo ? "yes" : "no");
        }

        private static final List<String> OK = List.of("ok");

        private static Scan scan(Table table, List<String> options) {
            Scan scan = Scan.all();
            for (String option : options) {
                if (option.startsWith("prefix=")) {
                    scan = Scan.prefix(raw(option.substring(7)));
                }
            }
            for (String option : options) {
                if (option.startsWith("from=")) {
                    scan.from(key(table.kind(), option.substring(5)));
                } else if (option.startsWith("to=")) {
                    scan.to(key(table.kind(), option.substring(3)));
                } else if (option.startsWith("limit=")) {
                    scan.limit(Long.parseLong(option.substring(6)));
                } else if (option.equals("backwards")) {
                    scan.backwards();
                } else if (!option.startsWith("prefix=")) {
                    throw new IllegalArgumentException("no option of a scan: " + option);
                }
            }
            return scan;
        }

        private static List<String> rows(Table table, Rows rows) {
            List<String> words = new ArrayList<>();
            for (int row = 0; row < rows.size(); row++) {
                words.add(shown(table, rows.key(row)) + "=" + word(rows.value(row)));
            }
            return words;
        }

        private Item item(String table, String key) {
            Item item = session.getItem(table(table), key(table(table).kind(), key));
            if (item == null) {
                throw new IllegalArgumentException("no item " + key);
            }
            return item;
        }

        private List<String> compared(Compared compared) {
            if (!compared.done()) {
                return List.of("mismatch", told(compared.version()));
            }
            return compared.version() == Session.ABSENT
                    ? List.of("done")
                    : List.of("done", told(compared.version()));
        }

        private List<String> run(String operation, List<String> words) {
            Table table = null;
            byte[] key = null;
            List<String> rest = words;
            // Most operations begin with a table and a key.
            if ("put get delete version flags ends small cas cad range item attribute links follow walk"
                    .contains(operation)) {
                table = table(words.get(0));
                key = key(table.kind(), words.get(1));
                rest = words.subList(2, words.size());
            } else if ("mget mput scan pages count columns visit".contains(operation)) {
                table = table(words.get(0));
                rest = words.subList(1, words.size());
            }
            switch (operation) {
                case "create":
                    tables.put(words.get(0), session.create(words.get(0), kind(words.get(1))));
                    return OK;
                case "open":
                    session.table(words.get(0));
                    return OK;
                case "drop":
                    tables.remove(words.get(0));
                    return yes(session.drop(words.get(0)));
                case "tables":
                    return session.tables().stream().sorted().toList();
                case "put":
                    {
                        PutOptions options = new PutOptions();
                        for (String option : rest.subList(1, rest.size())) {
                            if (option.startsWith("flags=")) {
                                options.flags(Integer.parseUnsignedInt(option.substring(6)));
                            } else if (option.startsWith("ends=")) {
                                options.endsIn(
                                        Duration.ofSeconds(Long.parseLong(option.substring(5))));
                            } else {
                                throw new IllegalArgumentException("no option of a put: " + option);
                            }
                        }
                        byte[] value = raw(rest.get(0));
                        return List.of(
                                told(
                                        rest.size() == 1
                                                ? session.put(table, key, value)
                                                : session.put(table, key, value, options)
                                                        .version()));
                    }
                case "get":
                    return List.of(word(session.get(table, key)));
                case "version":
                    return List.of(told(item(words.get(0), words.get(1)).version()));
                case "flags":
                    return List.of(
                            Integer.toUnsignedString(item(words.get(0), words.get(1)).flags()));
                case "ends":
                    return List.of(
                            item(words.get(0), words.get(1)).endsAt().isPresent()
                                    ? "later"
                                    : "never");
                case "small":
                    {
                        byte[] into = new byte[Integer.parseInt(rest.get(0))];
                        int got = session.get(table, key, into);
                        return List.of(got < 0 ? ABSENT : word(Arrays.copyOf(into, got)));
                    }
                case "delete":
                    return yes(session.delete(table, key));
                case "cas":
                    return compared(
                            session.compareAndSet(
                                    table, key, version(rest.get(0)), raw(rest.get(1))));
                case "cad":
                    return compared(session.compareAndDelete(table, key, version(rest.get(0))));
                case "range":
                    {
                        Session.Range part =
                                session.getRange(
                                        table,
                                        key,
                                        Long.parseLong(rest.get(0)),
                                        Integer.parseInt(rest.get(1)));
                        return part == null
                                ? List.of(ABSENT)
                                : List.of(word(part.bytes()), Long.toString(part.valueBytes()));
                    }
                case "mget":
                    {
                        TableKind kind = table.kind();
                        List<byte[]> keys = rest.stream().map(each -> key(kind, each)).toList();
                        return some(
                                session.multiGet(table, keys).stream()
                                        .map(ScriptTest::word)
                                        .toList());
                    }
                case "mput":
                    {
                        List<byte[]> keys = new ArrayList<>();
                        List<byte[]> values = new ArrayList<>();
                        for (String pair : rest) {
                            keys.add(key(table.kind(), pair.substring(0, pair.indexOf('='))));
                            values.add(raw(pair.substring(pair.indexOf('=') + 1)));
                        }
                        session.multiPut(table, keys, values);
                        return OK;
                    }
                case "scan":
                    return some(rows(table, session.scan(table, scan(table, rest))));
                case "pages":
                    {
                        List<String> all = new ArrayList<>();
                        int most = Integer.parseInt(rest.get(0));
                        try (Cursor cursor = session.cursor(table, Scan.all())) {
                            for (Rows page = cursor.next(most);
                                    !page.isEmpty();
                                    page = cursor.next(most)) {
                                assertEquals(true, page.size() <= most);
                                all.addAll(rows(table, page));
                            }
                        }
                        return some(all);
                    }
                case "count":
                    return List.of(Long.toString(session.count(table, scan(table, rest))));
                case "columns":
                    {
                        Rows rows = session.scan(table, Scan.all(), rest.get(0));
                        List<String> cells = new ArrayList<>();
                        for (int row = 0; row < rows.size(); row++) {
                            cells.add(word(rows.attribute(row, 0).orElse(null)));
                        }
                        return cells;
                    }
                case "item":
                    {
                        NewItem item = new NewItem();
                        for (String attribute : rest) {
                            int arrow = attribute.indexOf("->");
                            if (arrow >= 0) {
                                String[] target = attribute.substring(arrow + 2).split("/", 2);
                                Table of = table(target[0]);
                                item.link(
                                        attribute.substring(0, arrow),
                                        of,
                                        key(of.kind(), target[1]));
                            } else {
                                int equals = attribute.indexOf('=');
                                item.bytes(
                                        attribute.substring(0, equals),
                                        raw(attribute.substring(equals + 1)));
                            }
                        }
                        return List.of(told(session.putItem(table, key, item)));
                    }
                case "attribute":
                    return List.of(
                            word(item(words.get(0), words.get(1)).bytes(rest.get(0)).orElse(null)));
                case "links":
                    {
                        List<String> links = new ArrayList<>();
                        try (Item item = item(words.get(0), words.get(1))) {
                            for (Attribute link : item.links(rest.get(0))) {
                                Table of = session.tableById(link.tableId());
                                links.add(of.name() + "/" + shown(of, link.key()));
                            }
                        }
                        return some(links);
                    }
                case "follow":
                    try (Item item = item(words.get(0), words.get(1));
                            Item target = session.follow(item, rest.get(0))) {
                        return List.of(target == null ? ABSENT : word(target.key()));
                    }
                case "walk":
                    {
                        Walk walk =
                                Walk.along(rest.get(0).split(","))
                                        .depth(Integer.parseInt(rest.get(1)));
                        List<String> keys = new ArrayList<>();
                        try (Walker walker = session.walk(table, key, walk)) {
                            for (List<Arrival> step = walker.next(2);
                                    !step.isEmpty();
                                    step = walker.next(2)) {
                                step.forEach(arrival -> keys.add(word(arrival.item().key())));
                            }
                        }
                        return some(keys);
                    }
                case "visit":
                    {
                        List<String> keys = new ArrayList<>();
                        try (Frontier frontier = new Frontier()) {
                            for (String each : rest) {
                                frontier.add(table, key(table.kind(), each));
                            }
                            for (Item item : session.visit(frontier)) {
                                keys.add(item == null ? ABSENT : word(item.key()));
                            }
                        }
                        return keys;
                    }
                case "build":
                    {
                        List<NewTable> tables = new ArrayList<>();
                        built.clear();
                        for (String each : words.subList(1, words.size())) {
                            String[] parts = each.split(":");
                            tables.add(new NewTable(parts[0], kind(parts[1])));
                            built.put(parts[0], kind(parts[1]));
                        }
                        build = session.build(words.get(0), tables);
                        return OK;
                    }
                case "bput":
                    build.put(
                            words.get(0),
                            key(built.get(words.get(0)), words.get(1)),
                            raw(words.get(2)));
                    return OK;
                case "finish":
                    return List.of(Long.toString(build.finish().items()));
                case "abandon":
                    build.abandon();
                    return OK;
                case "forget":
                    return yes(session.dropDataset(words.get(0)));
                case "view":
                    views.put(words.get(1), session.view(words.get(0)));
                    return OK;
                case "vget":
                    {
                        Table of = views.get(words.get(0)).table(words.get(1));
                        return List.of(word(session.get(of, key(of.kind(), words.get(2)))));
                    }
                case "close":
                    views.remove(words.get(0)).close();
                    return OK;
                case "submit":
                    {
                        Table of = table(words.get(1));
                        byte[] its = key(of.kind(), words.get(2));
                        long number = Long.parseLong(words.get(words.size() - 1));
                        switch (words.get(0)) {
                            case "put" -> session.submitPut(of, its, raw(words.get(3)), number);
                            case "get" -> session.submitGet(of, its, number);
                            case "delete" -> session.submitDelete(of, its, number);
                            default ->
                                    throw new IllegalArgumentException("nothing is submitted so");
                        }
                        return OK;
                    }
                case "poll":
                    {
                        List<String> ended = new ArrayList<>();
                        while (session.outstanding() > 0) {
                            for (Completion each : session.poll(1, Duration.ofSeconds(1))) {
                                ended.add(each.number() + "=" + outcome(each));
                            }
                        }
                        return some(ended.stream().sorted().toList());
                    }
                default:
                    throw new IllegalArgumentException("no such operation");
            }
        }

        private static String outcome(Completion completion) {
            return switch (completion.kind()) {
                case GOT -> word(completion.value());
                case WRITTEN -> "written";
                case DELETED -> completion.done() ? "yes" : "no";
                case FAILED -> throw completion.error();
                default -> throw new IllegalArgumentException("an outcome that was not asked for");
            };
        }

        /** Runs a line, which says what is to come of it. Returns what is wrong. */
        String check(String line) {
            int arrow = line.indexOf(" -> ");
            List<String> call = words(line.substring(0, arrow));
            List<String> wanted = words(line.substring(arrow + 4));
            String operation = call.get(0);
            List<String> got;
            try {
                got = run(operation, call.subList(1, call.size()));
            } catch (KelixException error) {
                List<String> told = new ArrayList<>(List.of("error", error.kind().toString()));
                if (error.neededBytes() > 0) {
                    told.add(Long.toString(error.neededBytes()));
                }
                return told.equals(wanted) ? null : error.toString();
            } catch (RuntimeException error) {
                return error.toString();
            }
            boolean writes =
                    List.of("put", "item").contains(operation) || wanted.get(0).equals("done");
            boolean isWanted = got.size() == wanted.size();
            for (int at = 0; isWanted && at < got.size(); at++) {
                String want = wanted.get(at);
                if (want.startsWith("$") && writes) {
                    versions.put(want, Long.parseLong(got.get(at)));
                } else if (want.startsWith("$")) {
                    isWanted = told(versions.getOrDefault(want, -1L)).equals(got.get(at));
                } else {
                    isWanted = want.equals(got.get(at));
                }
            }
            String shown = String.join(" ", got);
            return isWanted
                    ? null
                    : "it brings " + shown.substring(0, Math.min(200, shown.length()));
        }
    }
}

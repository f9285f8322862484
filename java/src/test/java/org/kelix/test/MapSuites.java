package org.kelix.test;

import com.google.common.collect.testing.ConcurrentMapTestSuiteBuilder;
import com.google.common.collect.testing.MapTestSuiteBuilder;
import com.google.common.collect.testing.TestStringMapGenerator;
import com.google.common.collect.testing.features.CollectionFeature;
import com.google.common.collect.testing.features.CollectionSize;
import com.google.common.collect.testing.features.Feature;
import com.google.common.collect.testing.features.MapFeature;
import com.google.common.collect.testing.testers.CollectionAddAllTester;
import com.google.common.collect.testing.testers.CollectionAddTester;

import junit.framework.Test;
import junit.framework.TestSuite;

import org.kelix.Codec;
import org.kelix.Kelix;
import org.kelix.Session;
import org.kelix.TableKind;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;

/**
 * Guava's tests of maps: for maps of the JDK, which show what they are worth here, and for tables.
 */
final class MapSuites {
    /** What is claimed of {@link ConcurrentHashMap} and of tables. */
    private static final List<Feature<?>> CONCURRENT =
            List.of(
                    MapFeature.GENERAL_PURPOSE,
                    CollectionFeature.SUPPORTS_ITERATOR_REMOVE,
                    CollectionSize.ANY);

    private static final List<Feature<?>> HASH_MAP =
            List.of(
                    MapFeature.GENERAL_PURPOSE,
                    MapFeature.ALLOWS_NULL_KEYS,
                    MapFeature.ALLOWS_NULL_VALUES,
                    MapFeature.ALLOWS_ANY_NULL_QUERIES,
                    MapFeature.FAILS_FAST_ON_CONCURRENT_MODIFICATION,
                    CollectionFeature.SUPPORTS_ITERATOR_REMOVE,
                    CollectionSize.ANY);

    /** Maps that a test may have at once. Tables of those before are dropped. */
    private static final int KEPT = 16;

    private static Server server;
    private static Kelix kelix;
    private static int made;

    private MapSuites() {}

    static void close() {
        if (server != null) {
            kelix.close();
            server.close();
        }
    }

    private static ConcurrentMap<String, String> table(TableKind kind) {
        if (server == null) {
            server = new Server();
            kelix = Kelix.connect(server.address());
        }
        String name = "map-" + ++made;
        try (Session session = kelix.session()) {
            session.create(name, kind);
            session.drop("map-" + (made - KEPT));
        }
        return kelix.asMap(name, Codec.strings(), Codec.strings());
    }

    private interface Maps<M extends Map<String, String>> {
        M make();
    }

    private static <M extends Map<String, String>> TestStringMapGenerator generator(
            Maps<M> maps, boolean isSorted) {
        return new TestStringMapGenerator() {
            @Override
            protected Map<String, String> create(Map.Entry<String, String>[] entries) {
                Map<String, String> map = maps.make();
                for (Map.Entry<String, String> entry : entries) {
                    map.put(entry.getKey(), entry.getValue());
                }
                return map;
            }

            @Override
            public Iterable<Map.Entry<String, String>> order(
                    List<Map.Entry<String, String>> inserted) {
                if (!isSorted) {
                    return inserted;
                }
                List<Map.Entry<String, String>> sorted = new ArrayList<>(inserted);
                Collections.sort(sorted, Map.Entry.comparingByKey());
                return sorted;
            }
        };
    }

    private static Test concurrent(
            String name,
            Maps<ConcurrentMap<String, String>> maps,
            boolean isSorted,
            Method... left) {
        List<Feature<?>> features = new ArrayList<>(CONCURRENT);
        if (isSorted) {
            features.add(CollectionFeature.KNOWN_ORDER);
        }
        return ConcurrentMapTestSuiteBuilder.using(generator(maps, isSorted))
                .named(name)
                .withFeatures(features)
                .suppressing(left)
                .createTestSuite();
    }

    /** The baseline: {@link HashMap}. */
    public static final class OfHashMap {
        private OfHashMap() {}

        public static Test suite() {
            return MapTestSuiteBuilder.using(generator(HashMap::new, false))
                    .named("HashMap")
                    .withFeatures(HASH_MAP)
                    .createTestSuite();
        }
    }

    /** The baseline with the features that tables claim: {@link ConcurrentHashMap}. */
    public static final class OfConcurrentHashMap {
        private OfConcurrentHashMap() {}

        public static Test suite() {
            // Its set of entries can be added to, which no feature says. Guava leaves these out for
            // it, too.
            return concurrent(
                    "ConcurrentHashMap",
                    ConcurrentHashMap::new,
                    false,
                    CollectionAddTester.getAddUnsupportedNotPresentMethod(),
                    CollectionAddAllTester.getAddAllUnsupportedNonePresentMethod(),
                    CollectionAddAllTester.getAddAllUnsupportedSomePresentMethod());
        }
    }

    /** Tables without order. */
    public static final class OfHashTables {
        private OfHashTables() {}

        public static Test suite() {
            return concurrent("hash table", () -> table(TableKind.HASH), false);
        }
    }

    /** Tables in the order of their keys. */
    public static final class OfOrderedTables {
        private OfOrderedTables() {}

        public static Test suite() {
            TestSuite suite = new TestSuite("ordered table");
            suite.addTest(concurrent("ordered table", () -> table(TableKind.STRINGS), true));
            return suite;
        }
    }
}

package org.kelix;

import java.util.ArrayList;
import java.util.List;

/** Along which links a walk goes, how far, and in which order. */
public final class Walk {
    final List<byte[]> links = new ArrayList<>();
    int depth;
    boolean isDepthFirst;

    private Walk() {}

    /**
     * A walk along links with these names, from any item that has them, as far as they lead.
     *
     * @param links the names
     * @return a new walk
     */
    public static Walk along(String... links) {
        Walk walk = new Walk();
        for (String link : Block.need(links, "names of links")) {
            walk.links.add(Block.name(link, "name of a link"));
        }
        return walk;
    }

    /**
     * How many links from where it begins.
     *
     * @param most one at least
     * @return this
     */
    public Walk depth(int most) {
        if (most < 1) {
            throw KelixException.invalid("the depth of a walk is " + most + ": one is the least");
        }
        depth = most;
        return this;
    }

    /**
     * On along the first link before the second one is looked at. Otherwise all that are as far
     * away come before those that are further.
     *
     * @return this
     */
    public Walk depthFirst() {
        isDepthFirst = true;
        return this;
    }
}

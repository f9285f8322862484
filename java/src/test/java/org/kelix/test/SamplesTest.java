package org.kelix.test;

import static org.junit.Assert.assertTrue;

import org.junit.Test;

public class SamplesTest {
    @Test
    public void placeholder() {
        assertTrue(true);
    }
}

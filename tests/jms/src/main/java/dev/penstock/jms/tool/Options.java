package dev.penstock.jms.tool;

import java.util.HashMap;
import java.util.Map;

/** Command-line options of the form {@code --name value}. */
final class Options {
    private final Map<String, String> values = new HashMap<>();

    Options(String... arguments) {
        for (int i = 0; i < arguments.length; i += 2) {
            if (!arguments[i].startsWith("--") || i + 1 == arguments.length) {
                throw new IllegalArgumentException("expected --name value, found: " + arguments[i]);
            }
            values.put(arguments[i].substring(2), arguments[i + 1]);
        }
    }

    String required(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("--" + name + " is missing");
        }
        return value;
    }

    String text(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }

    int number(String name, int otherwise) {
        return values.containsKey(name) ? Integer.parseInt(values.get(name)) : otherwise;
    }
}

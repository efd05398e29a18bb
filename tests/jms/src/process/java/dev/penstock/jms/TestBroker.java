package dev.penstock.jms;

import java.net.URI;
import org.apache.qpid.jms.JmsConnectionFactory;

/** Where the broker under test listens: what hack/test and tests/jms_suite pass as system properties. */
final class TestBroker {
    /** A user that the broker's development mode knows. */
    static final String USER = "guest";

    static final String PASSWORD = "guest";

    private TestBroker() {}

    /** The plain AMQP listener, with URI options such as {@code jms.prefetchPolicy.all=1}. */
    static String uri(String... options) {
        return "amqp://" + required("penstock.amqp") + query(options);
    }

    /** The TLS listener; {@link #certificateAuthority()} signed its certificate. */
    static String tlsUri(String... options) {
        return "amqps://" + required("penstock.amqps") + query(options);
    }

    /** The TLS listener that asks clients for a certificate. */
    static String mutualUri(String... options) {
        return "amqps://" + required("penstock.mutual") + query(options);
    }

    /** The listener for AMQP over WebSocket. */
    static String webSocketUri(String... options) {
        return "amqpws://" + required("penstock.ws") + query(options);
    }

    /** The same over TLS. */
    static String secureWebSocketUri(String... options) {
        return "amqpwss://" + required("penstock.wss") + query(options);
    }

    /** A PKCS #12 key store with the certificate of user "billing". */
    static String keyStore() {
        return required("penstock.keystore");
    }

    /** A signed token of an issuer that the broker trusts. */
    static String token() {
        return required("penstock.token");
    }

    /** A PKCS #12 trust store that holds the authority of the TLS listener. */
    static String trustStore() {
        return required("penstock.truststore");
    }

    /** The socket of the process that forks brokers, for tests that kill theirs. */
    static String forks() {
        return required("penstock.forks");
    }

    static JmsConnectionFactory factory(String uri) {
        return new JmsConnectionFactory(USER, PASSWORD, URI.create(uri).toString());
    }

    private static String query(String... options) {
        return options.length == 0 ? "" : "?" + String.join("&", options);
    }

    private static String required(String property) {
        String value = System.getProperty(property, "");
        if (value.isEmpty()) {
            throw new IllegalStateException(
                    "the system property " + property + " is missing; run these tests by tests/jms_suite (pytest -m jms)");
        }
        return value;
    }
}

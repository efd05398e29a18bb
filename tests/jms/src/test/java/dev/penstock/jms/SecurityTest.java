package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import jakarta.jms.JMSException;
import jakarta.jms.JMSSecurityException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.List;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** SASL and TLS as a JMS client meets them. */
@DisplayName("SASL and TLS")
class SecurityTest extends JmsTestCase {
    private static final String[] TRUST = {
        "transport.trustStoreLocation=" + TestBroker.trustStore(), "transport.trustStorePassword=penstock"
    };
    private static final String PLAIN = "amqp.saslMechanisms=PLAIN";

    private static JmsConnectionFactory factory(String user, String password, String uri) {
        return new JmsConnectionFactory(user, password, uri);
    }

    @Test
    @DisplayName("PLAIN with the right password gets in")
    void goodPassword() throws JMSException {
        open(factory("guest", "guest", TestBroker.uri(PLAIN)));
    }

    @Test
    @DisplayName("PLAIN with a wrong password, or an unknown user, is a JMSSecurityException")
    void badPassword() {
        assertThrows(JMSSecurityException.class, () -> open(factory("guest", "wrong", TestBroker.uri(PLAIN))));
        assertThrows(JMSSecurityException.class, () -> open(factory("nobody", "guest", TestBroker.uri(PLAIN))));
        assertThrows(JMSSecurityException.class, () -> open(factory("guest", "", TestBroker.uri(PLAIN))));
    }

    @ParameterizedTest(name = "{0} lets in, and a wrong password is a JMSSecurityException")
    @ValueSource(strings = {"SCRAM-SHA-256", "SCRAM-SHA-512"})
    void scram(String mechanism) throws JMSException {
        String uri = TestBroker.uri("amqp.saslMechanisms=" + mechanism);
        open(factory("guest", "guest", uri));
        assertThrows(JMSSecurityException.class, () -> open(factory("guest", "wrong", uri)));
        assertThrows(JMSSecurityException.class, () -> open(factory("nobody", "guest", uri)));
    }

    @Test
    @DisplayName("EXTERNAL: the certificate is the login")
    void certificate() throws JMSException {
        String[] options = {
            TRUST[0], TRUST[1],
            "transport.keyStoreLocation=" + TestBroker.keyStore(), "transport.keyStorePassword=penstock",
            "amqp.saslMechanisms=EXTERNAL"
        };
        open(new JmsConnectionFactory(TestBroker.mutualUri(options)));
        assertThrows(JMSException.class, () -> open(new JmsConnectionFactory(TestBroker.mutualUri(TRUST))));
    }

    @Test
    @DisplayName("XOAUTH2: a signed token lets in, a changed one is a JMSSecurityException")
    void token() throws JMSException {
        String uri = TestBroker.uri("amqp.saslMechanisms=XOAUTH2");
        open(factory("whoever", TestBroker.token(), uri));
        assertThrows(JMSSecurityException.class, () -> open(factory("whoever", TestBroker.token() + "x", uri)));
    }

    @Test
    @DisplayName("AMQP over WebSocket, with TLS and without: messages larger than a frame go through")
    void webSocket() throws JMSException {
        for (String uri : List.of(
                TestBroker.webSocketUri(), TestBroker.webSocketUri() + "/amqp",
                TestBroker.secureWebSocketUri(TRUST))) {
            Topic topic = topic("orders");
            Session session = session(open(factory("guest", "guest", uri)));
            MessageConsumer consumer = session.createSharedDurableConsumer(topic, name("s"));
            String large = "x".repeat(200_000);
            session.createProducer(topic).send(session.createTextMessage(large));
            assertEquals(large, text(consumer));
            consumer.close();
            session.unsubscribe(name("s"));
        }
    }

    @Test
    @DisplayName("ANONYMOUS gets in where the broker allows it (development mode does)")
    void anonymous() throws JMSException {
        open(new JmsConnectionFactory(TestBroker.uri("amqp.saslMechanisms=ANONYMOUS")));
    }

    @Test
    @DisplayName("A mechanism that the broker doesn't have is refused, not tried")
    void unknownMechanism() {
        assertThrows(
                JMSSecurityException.class,
                () -> open(factory("guest", "guest", TestBroker.uri("amqp.saslMechanisms=CRAM-MD5"))));
    }

    @Test
    @DisplayName("TLS: messages larger than a TLS record go through")
    void tls() throws JMSException {
        String uri = TestBroker.tlsUri("transport.trustStoreLocation=" + TestBroker.trustStore(), "transport.trustStorePassword=penstock");
        Topic topic = topic("orders");
        MessageConsumer consumer = session(open(factory("guest", "guest", uri))).createSharedDurableConsumer(topic, name("s"));
        String large = "x".repeat(200_000);
        send(topic, "small", large);
        assertEquals("small", text(consumer));
        assertEquals(large, text(consumer));
    }

    @Test
    @DisplayName("TLS: a client that doesn't know the authority stays out")
    void unknownAuthority() {
        assertThrows(JMSException.class, () -> open(factory("guest", "guest", TestBroker.tlsUri())));
    }

    @Test
    @DisplayName("TLS: a client that speaks plain AMQP there fails, and the listener goes on")
    void plainOnTheTlsPort() throws JMSException {
        String plain = TestBroker.tlsUri().replaceFirst("amqps:", "amqp:");
        JmsConnectionFactory impatient = factory("guest", "guest", plain + "?jms.connectTimeout=5000");
        assertThrows(JMSException.class, () -> impatient.createConnection().start());
        tls();
    }
}

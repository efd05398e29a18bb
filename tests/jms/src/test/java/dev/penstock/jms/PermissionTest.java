package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.penstock.jms.OwnBroker.Ending;
import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.JMSSecurityException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Users, how they log in, and what they may do: refused is a JMSSecurityException. */
@DisplayName("Users and permissions")
class PermissionTest extends OwnBrokerCase {
    private static final String UNAUTHORIZED = "amqp:unauthorized-access";
    private static final String USERS = """
            authentication: {users: {shop: s1, billing: b1, admin: a1}}
            permissions:
              - {users: [shop], actions: [publish], exchanges: [orders]}
              - {users: [billing], actions: [consume], exchanges: [orders], subscriptions: [billing], queues: [work]}
              - {users: [billing], actions: [create], subscriptions: [billing]}
              - users: [admin]
                actions: [publish, consume, create, manage]
                exchanges: ["*"]
                subscriptions: ["*"]
                queues: ["*"]
            """;

    private void start() throws Exception {
        startBroker(false, USERS);
        broker.declare("""
                - {type: penstock.exchange, name: orders, body: {exchangeType: Topic}}
                - {type: penstock.queue, name: work, body: {}}
                """);
    }

    private Connection as(String user, String password) throws JMSException {
        return open(new JmsConnectionFactory(user, password, "failover:(amqp://" + broker.address() + ")?" + FAILOVER));
    }

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("Each user may do what is granted and nothing else, and that is so after a restart")
    void granted(Ending ending) throws Exception {
        start();
        Session shop = session(as("shop", "s1"));
        Session billing = session(as("billing", "b1"));
        Topic orders = shop.createTopic("orders");
        Queue work = shop.createQueue("work");
        for (int round = 0; round < 2; round++) {
            MessageConsumer consumer = billing.createSharedDurableConsumer(orders, "billing");
            publish(shop, orders, "order");
            assertEquals("order", text(consumer));
            consumer.close();
            assertRefused(JMSSecurityException.class, UNAUTHORIZED, () -> shop.createConsumer(orders));
            assertRefused(JMSSecurityException.class, UNAUTHORIZED, () -> shop.createProducer(work));
            assertRefused(JMSSecurityException.class, UNAUTHORIZED, () -> billing.createProducer(orders));
            assertRefused(JMSSecurityException.class, UNAUTHORIZED,
                    () -> billing.createSharedDurableConsumer(orders, "other"));
            if (round == 0) {
                broker.restart(ending);
            }
        }
    }

    @Test
    @DisplayName("A producer without a destination is asked for each message; in a transaction the commit fails")
    void anonymousProducer() throws Exception {
        start();
        Session shop = session(as("shop", "s1"));
        try (var producer = shop.createProducer(null)) {
            producer.send(shop.createTopic("orders"), shop.createTextMessage("fine"));
            assertRefused(JMSSecurityException.class, UNAUTHORIZED,
                    () -> producer.send(shop.createQueue("work"), shop.createTextMessage("not allowed")));
        }
        Session transacted = as("shop", "s1").createSession(Session.SESSION_TRANSACTED);
        try (var producer = transacted.createProducer(null)) {
            assertThrows(JMSException.class, () -> {
                producer.send(transacted.createQueue("work"), transacted.createTextMessage("not allowed"));
                transacted.commit();
            });
        }
        assertNothing(session(as("admin", "a1")).createConsumer(shop.createQueue("work")));
    }

    @Test
    @DisplayName("Another user's subscription can't be joined or ended, except by who may manage it")
    void ownership() throws Exception {
        startBroker(true, "authentication: {users: {ann: a, bob: b}}\n"
                + "permissions: [{users: [ann, bob], actions: [publish, consume, create], exchanges: ['*'], subscriptions: ['*'], "
                + "queues: ['*']}]\n");
        Session ann = session(as("ann", "a"));
        Session bob = session(as("bob", "b"));
        Topic orders = ann.createTopic("orders");
        ann.createSharedDurableConsumer(orders, "s").close();
        assertRefused(JMSSecurityException.class, UNAUTHORIZED, () -> bob.createSharedDurableConsumer(orders, "s"));
        assertRefused(JMSSecurityException.class, UNAUTHORIZED, () -> bob.unsubscribe("s"));
        publish(bob, orders, "order");
        assertEquals("order", text(ann.createSharedDurableConsumer(orders, "s")));
    }

    @ParameterizedTest
    @ValueSource(strings = {"SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"})
    @DisplayName("Each mechanism lets in the right password, and a wrong one is a JMSSecurityException")
    void mechanisms(String mechanism) throws Exception {
        start();
        String uri = "amqp://" + broker.address() + "?amqp.saslMechanisms=" + mechanism;
        open(new JmsConnectionFactory("shop", "s1", uri));
        assertThrows(JMSSecurityException.class, () -> open(new JmsConnectionFactory("shop", "wrong", uri)));
        assertThrows(JMSSecurityException.class, () -> open(new JmsConnectionFactory("nobody", "s1", uri)));
        JMSSecurityException anonymous = assertThrows(JMSSecurityException.class,
                () -> open(new JmsConnectionFactory("amqp://" + broker.address() + "?amqp.saslMechanisms=ANONYMOUS")));
        assertTrue(anonymous.getMessage() != null);
    }

    private void allow(String permissions) throws Exception {
        Path file = folder.resolve("permissions.yaml");
        Path written = Files.writeString(folder.resolve("permissions.new"), "permissions:\n" + permissions);
        Files.move(written, file, StandardCopyOption.ATOMIC_MOVE);
    }

    private static final String BOTH = "  - {users: [shop], actions: [publish, consume], queues: [work]}\n";
    private static final String PUBLISH = "  - {users: [shop], actions: [publish], queues: [work]}\n";

    @Test
    @DisplayName("A permission that is taken away closes the consumer that has it, not the producer; over a restart; given again it holds")
    void changedWhileAttached() throws Exception {
        allow(BOTH);
        startBroker(false, "authentication: {users: {shop: s1}}\npermissionsFile: '" + folder.resolve("permissions.yaml") + "'\n");
        broker.declare("- {type: penstock.queue, name: work, body: {}}");
        Connection connection = as("shop", "s1");
        Session session = session(connection);
        Queue work = session.createQueue("work");
        CompletableFuture<JMSException> told = new CompletableFuture<>();
        connection.setExceptionListener(told::complete); // of what happens to consumers that listen
        CompletableFuture<Message> received = new CompletableFuture<>();
        Session listening = session(connection);
        listening.createConsumer(work).setMessageListener(received::complete);
        MessageProducer producer = session.createProducer(work);
        producer.send(session.createTextMessage("1"));
        assertEquals("1", received.get(SOON, TimeUnit.MILLISECONDS).getBody(String.class));
        connection.stop(); // returns when the listener is done with it
        flush(session); // the acknowledgement was read
        connection.start();

        allow(PUBLISH);
        assertEquals(JMSSecurityException.class, told.get(SOON, TimeUnit.MILLISECONDS).getClass());
        producer.send(session.createTextMessage("2"));
        assertRefused(JMSSecurityException.class, UNAUTHORIZED, () -> session.createConsumer(work));
        broker.restart(Ending.KILLED);
        assertRefused(JMSSecurityException.class, UNAUTHORIZED, () -> session.createConsumer(work));
        producer.send(session.createTextMessage("3"));

        allow(BOTH);
        assertEquals(List.of("2", "3"), texts(onceAllowed(session, work), 2));
    }

    /** The file is looked at once a second. */
    private static MessageConsumer onceAllowed(Session session, Queue queue) throws JMSException {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(SOON);
        while (true) {
            try {
                return session.createConsumer(queue);
            } catch (JMSSecurityException notYet) {
                if (System.nanoTime() > deadline) {
                    throw notYet;
                }
            }
        }
    }
}

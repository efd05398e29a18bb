package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/**
 * Subscriptions that tests/jms/manifests declares: docs/reference/rules.md, decision 14.
 *
 * <p>Their names are fixed, so each test empties the one it uses and leaves it empty.
 */
@DisplayName("Managed subscriptions")
class ManagedTest extends JmsTestCase {
    /** Topic exchange; {@code eu-orders} (Refuse) is bound to it by {@code eu.#}, {@code eu-ignoring} (Ignore) as well. */
    private static final String EXCHANGE = "managed";

    private static final String REFUSING = "eu-orders";
    private static final String IGNORING = "eu-ignoring";

    private Session session;
    private Topic exchange;

    @BeforeEach
    void startWithEmptySubscriptions() throws JMSException {
        session = session();
        exchange = session.createTopic(EXCHANGE);
        for (String subscription : List.of(REFUSING, IGNORING)) {
            MessageConsumer consumer = session.createSharedDurableConsumer(exchange, subscription);
            rest(consumer);
            consumer.close();
        }
    }

    private Topic keyed(String key) throws JMSException {
        return session.createTopic(EXCHANGE + "/" + key);
    }

    @Test
    @DisplayName("Naming the exchange alone joins with the binding that the resource declares")
    void joinByExchangeAlone() throws JMSException {
        MessageConsumer consumer = session().createSharedDurableConsumer(exchange, REFUSING);
        send(keyed("us.ny"), "us");
        send(keyed("eu.paris"), "eu");
        assertEquals("eu", text(consumer));
        assertNothing(consumer);
    }

    @Test
    @DisplayName("It collects before any consumer came, because the resource made it")
    void collectsWithoutConsumers() throws JMSException {
        send(keyed("eu.rome"), "1");
        send(keyed("eu.paris"), "2");
        assertEquals(List.of("1", "2"), texts(session().createSharedDurableConsumer(exchange, REFUSING), 2));
    }

    @Test
    @DisplayName("Naming the declared binding itself joins as well")
    void joinByTheDeclaredBinding() throws JMSException {
        MessageConsumer consumer = session().createSharedDurableConsumer(keyed("eu.#"), REFUSING);
        send(keyed("eu.paris"), "eu");
        assertEquals("eu", text(consumer));
    }

    @Test
    @DisplayName("Another binding is refused even when idle, and the refusal names the resource")
    void otherBindingIsRefused() throws JMSException {
        send(keyed("eu.paris"), "backlog");
        JMSException refusal =
                assertRefused(LOCKED, () -> session().createSharedDurableConsumer(keyed("us.#"), REFUSING));
        assertTrue(refusal.getMessage().contains("default/" + REFUSING), refusal.getMessage());
        assertEquals("backlog", text(session().createSharedDurableConsumer(exchange, REFUSING)));
    }

    @Test
    @DisplayName("A selector is refused as another binding is")
    void selectorIsRefused() {
        JMSException refusal =
                assertRefused(LOCKED, () -> session().createSharedDurableConsumer(exchange, REFUSING, "region = 'eu'"));
        assertTrue(refusal.getMessage().contains("default/" + REFUSING), refusal.getMessage());
    }

    @Test
    @DisplayName("With clientOverrides Ignore, other wishes join and get what is declared")
    void ignoredWishes() throws JMSException {
        MessageConsumer bySelector = session().createSharedDurableConsumer(exchange, IGNORING, "region = 'us'");
        send(keyed("us.ny"), "us");
        send(keyed("eu.paris"), "eu");
        assertEquals("eu", text(bySelector));
        bySelector.close();
        MessageConsumer byKey = session().createSharedDurableConsumer(keyed("us.#"), IGNORING);
        send(keyed("us.ny"), "us");
        send(keyed("eu.rome"), "rome");
        assertEquals("rome", text(byKey));
        assertNothing(byKey);
    }

    @Test
    @DisplayName("Unsubscribe is refused, in use or not, and nothing is lost")
    void unsubscribeIsRefused() throws JMSException {
        send(keyed("eu.paris"), "kept");
        JMSException refusal = assertRefused(LOCKED, () -> session().unsubscribe(REFUSING));
        assertTrue(refusal.getMessage().contains("default/" + REFUSING), refusal.getMessage());
        MessageConsumer consumer = session().createSharedDurableConsumer(exchange, REFUSING);
        assertRefused(LOCKED, () -> session().unsubscribe(REFUSING));
        assertEquals("kept", text(consumer));
    }

    @Test
    @DisplayName("A declared exclusive one takes its ClientID's consumer and refuses a shared one")
    void exclusiveWithClientId() throws JMSException {
        Session billing = session(connectAs("billing"));
        assertRefused(LOCKED, () -> billing.createSharedDurableConsumer(exchange, "invoices"));
        MessageConsumer consumer = billing.createDurableConsumer(exchange, "invoices");
        rest(consumer);
        send(keyed("eu.paris"), "invoice");
        assertEquals("invoice", text(consumer));
        consumer.close();
        assertRefused(LOCKED, () -> billing.unsubscribe("invoices"));
    }
}

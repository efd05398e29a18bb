package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import jakarta.jms.Connection;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.List;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/**
 * Shared durable and not-shared durable subscriptions of one ClientID have one name space and can't coexist.
 *
 * <p>{@code Session.createSharedDurableConsumer}: "A shared durable subscription and an unshared durable subscription may not have
 * the same name and client identifier." docs/reference/rules.md: the exclusivity of an existing queue decides, active or not, and a refusal
 * changes nothing.
 */
@DisplayName("Shared against not shared")
class ExclusivityTest extends JmsTestCase {
    @Test
    @DisplayName("Shared on the name of an active not-shared one is refused")
    void sharedOnActiveUnshared() throws JMSException {
        Topic topic = topic("orders");
        Connection connection = connectAs(name("app"));
        MessageConsumer unshared = session(connection).createDurableConsumer(topic, name("d"));
        assertThrows(JMSException.class, () -> session(connection).createSharedDurableConsumer(topic, name("d")));
        send(topic, "1");
        assertEquals("1", text(unshared));
    }

    @Test
    @DisplayName("Not shared on the name of an active shared one is refused")
    void unsharedOnActiveShared() throws JMSException {
        Topic topic = topic("orders");
        Connection connection = connectAs(name("app"));
        MessageConsumer shared = session(connection).createSharedDurableConsumer(topic, name("d"));
        assertThrows(JMSException.class, () -> session(connection).createDurableConsumer(topic, name("d")));
        send(topic, "1");
        assertEquals("1", text(shared));
    }

    @Test
    @DisplayName("Shared on the name of an inactive not-shared one is refused by the broker, and nothing is lost by it")
    void sharedOnInactiveUnshared() throws JMSException {
        Topic topic = topic("orders");
        Connection first = connectAs(name("app"));
        session(first).createDurableConsumer(topic, name("d"));
        first.close();
        send(topic, "1");

        Session session = session(connectAs(name("app")));
        assertRefused(LOCKED, () -> session.createSharedDurableConsumer(topic, name("d")));
        send(topic, "2");
        MessageConsumer again = session.createDurableConsumer(topic, name("d"));
        assertEquals(List.of("1", "2"), texts(again, 2));
        again.close();
        session.unsubscribe(name("d")); // the refusal has not orphaned it
        assertThrows(InvalidDestinationException.class, () -> session.unsubscribe(name("d")));
    }

    @Test
    @DisplayName("Not shared on the name of an inactive shared one is refused by the broker, and nothing is lost by it")
    void unsharedOnInactiveShared() throws JMSException {
        Topic topic = topic("orders");
        Connection first = connectAs(name("app"));
        session(first).createSharedDurableConsumer(topic, name("d"));
        first.close();
        send(topic, "1");

        Session session = session(connectAs(name("app")));
        assertRefused(LOCKED, () -> session.createDurableConsumer(topic, name("d")));
        send(topic, "2");
        MessageConsumer again = session.createSharedDurableConsumer(topic, name("d"));
        assertEquals(List.of("1", "2"), texts(again, 2));
    }

    @Test
    @DisplayName("After unsubscribe the name is free for the other kind")
    void unsubscribeFreesTheName() throws JMSException {
        Topic topic = topic("orders");
        Session session = session(connectAs(name("app")));
        session.createDurableConsumer(topic, name("d")).close();
        session.unsubscribe(name("d"));
        MessageConsumer shared = session.createSharedDurableConsumer(topic, name("d"));
        send(topic, "1");
        assertEquals("1", text(shared));
    }
}

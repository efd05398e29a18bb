package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/**
 * Another topic or selector under a name that exists.
 *
 * <p>{@code Session.createSharedDurableConsumer}: with an active consumer a JMSException, without one "equivalent to unsubscribing
 * (deleting) the old one and creating a new one". docs/reference/rules.md, decision 6: a rebind drops the backlog, only with no consumer, and
 * "different" is compared after parsing.
 */
@DisplayName("Change of selector or topic")
class RebindTest extends JmsTestCase {
    @Test
    @DisplayName("Another selector is refused while another connection consumes, which goes on as before")
    void otherSelectorInUse() throws JMSException {
        Topic topic = topic("orders");
        MessageConsumer active = session().createSharedDurableConsumer(topic, name("s"), "region = 'eu'");
        assertRefused(LOCKED, () -> session().createSharedDurableConsumer(topic, name("s"), "region = 'us'"));
        assertRefused(LOCKED, () -> session().createSharedDurableConsumer(topic, name("s")));
        sendFrom(topic, "us", "us");
        sendFrom(topic, "eu", "eu");
        assertEquals("eu", text(active));
        assertNothing(active);
    }

    @Test
    @DisplayName("Another topic is refused while another connection consumes, which goes on as before")
    void otherTopicInUse() throws JMSException {
        Topic orders = topic("orders");
        Topic returns = topic("returns");
        MessageConsumer active = session().createSharedDurableConsumer(orders, name("s"));
        assertRefused(LOCKED, () -> session().createSharedDurableConsumer(returns, name("s")));
        send(returns, "return");
        send(orders, "order");
        assertEquals("order", text(active));
        assertNothing(active);
    }

    @Test
    @DisplayName("When idle, another selector starts anew: the backlog goes, the new selector holds")
    void otherSelectorWhenIdle() throws JMSException {
        Topic topic = topic("orders");
        session().createSharedDurableConsumer(topic, name("s"), "region = 'eu'").close();
        sendFrom(topic, "eu", "old backlog");

        MessageConsumer consumer = session().createSharedDurableConsumer(topic, name("s"), "region = 'us'");
        assertNothing(consumer);
        sendFrom(topic, "eu", "eu");
        sendFrom(topic, "us", "us");
        assertEquals("us", text(consumer));
        assertNothing(consumer);
    }

    @Test
    @DisplayName("When idle, another topic starts anew: the backlog goes, the old topic no longer counts")
    void otherTopicWhenIdle() throws JMSException {
        Topic orders = topic("orders");
        Topic returns = topic("returns");
        session().createSharedDurableConsumer(orders, name("s")).close();
        send(orders, "old backlog");

        MessageConsumer consumer = session().createSharedDurableConsumer(returns, name("s"));
        send(orders, "order");
        send(returns, "return");
        assertEquals("return", text(consumer));
        assertNothing(consumer);
    }

    @Test
    @DisplayName("A not-shared durable one starts anew in the same way")
    void unsharedWhenIdle() throws JMSException {
        Topic topic = topic("orders");
        Connection first = connectAs(name("app"));
        session(first).createDurableConsumer(topic, name("d"));
        first.close();
        sendFrom(topic, "us", "old backlog");

        Session session = session(connectAs(name("app")));
        MessageConsumer consumer = session.createDurableConsumer(topic, name("d"), "region = 'us'", false);
        assertNothing(consumer);
        sendFrom(topic, "eu", "eu");
        sendFrom(topic, "us", "us");
        assertEquals("us", text(consumer));
    }

    @Test
    @DisplayName("The same selector spelt otherwise is the same selector")
    void equalAfterParsing() throws JMSException {
        Topic topic = topic("orders");
        session().createSharedDurableConsumer(topic, name("s"), "region = 'eu' and size > 3").close();
        MessageConsumer one = session().createSharedDurableConsumer(topic, name("s"), "region='eu'  AND (size>3)");
        MessageConsumer two = session().createSharedDurableConsumer(topic, name("s"), "(region = 'eu') AND size > 3");
        one.close();
        two.close();
    }
}

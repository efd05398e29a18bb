package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Transacted sessions: what is sent and received in one is done at the commit, or not at all. */
@DisplayName("Transacted sessions")
class TransactionTest extends JmsTestCase {
    private static Session transacted(Connection connection) throws JMSException {
        return connection.createSession(Session.SESSION_TRANSACTED);
    }

    private static void publish(Session session, MessageProducer producer, String... texts) throws JMSException {
        for (String text : texts) {
            producer.send(session.createTextMessage(text));
        }
    }

    /** A queue with these messages. */
    private Queue filled(String stem, String... texts) throws JMSException {
        Queue queue = publishing().createQueue(name(stem));
        MessageProducer producer = publishing().createProducer(queue);
        publish(publishing(), producer, texts);
        producer.close();
        return queue;
    }

    private MessageConsumer reader(Queue queue) throws JMSException {
        return session().createConsumer(queue);
    }

    @Test
    @DisplayName("What is sent is seen at the commit, over several queues, in sending order")
    void sentAtCommit() throws JMSException {
        Session session = transacted(connect());
        Queue first = session.createQueue(name("first"));
        Queue second = session.createQueue(name("second"));
        MessageConsumer ofFirst = reader(first);
        MessageConsumer ofSecond = reader(second);
        MessageProducer anywhere = session.createProducer(null);
        for (String text : List.of("1", "2", "3")) {
            anywhere.send(first, session.createTextMessage(text));
            anywhere.send(second, session.createTextMessage(text));
        }
        assertNothing(ofFirst);
        session.commit();
        assertEquals(List.of("1", "2", "3"), texts(ofFirst, 3));
        assertEquals(List.of("1", "2", "3"), texts(ofSecond, 3));
    }

    @Test
    @DisplayName("After a rollback nothing of it was sent, and the session goes on")
    void sentAndRolledBack() throws JMSException {
        Session session = transacted(connect());
        Queue queue = session.createQueue(name("q"));
        MessageProducer producer = session.createProducer(queue);
        publish(session, producer, "undone");
        session.rollback();
        publish(session, producer, "done");
        session.commit();
        MessageConsumer reader = reader(queue);
        assertEquals(List.of("done"), rest(reader));
    }

    @Test
    @DisplayName("What was received comes again after a rollback, in order, counted; after a commit it does not")
    void receivedAndRolledBack() throws JMSException {
        Queue queue = filled("q", "1", "2", "3");
        Connection connection = connect();
        Session session = transacted(connection);
        MessageConsumer consumer = session.createConsumer(queue);
        assertEquals(List.of("1", "2"), texts(consumer, 2));
        session.rollback();
        Message again = next(consumer);
        assertEquals("1", again.getBody(String.class));
        assertTrue(again.getJMSRedelivered());
        assertEquals(2, again.getIntProperty("JMSXDeliveryCount"));
        assertEquals(List.of("2", "3"), texts(consumer, 2));
        session.commit();
        connection.close();
        assertNothing(reader(queue));
    }

    @Test
    @DisplayName("Receiving and sending belong together")
    void moved() throws JMSException {
        Queue in = filled("in", "a");
        Session session = transacted(connect());
        Queue out = session.createQueue(name("out"));
        MessageConsumer consumer = session.createConsumer(in);
        MessageProducer producer = session.createProducer(out);
        MessageConsumer reader = reader(out);
        publish(session, producer, text(consumer) + " first");
        session.rollback();
        publish(session, producer, text(consumer) + " second");
        assertNothing(reader);
        session.commit();
        assertEquals(List.of("a second"), texts(reader, 1));
        assertNothing(reader);
        assertNothing(consumer);
    }

    @Test
    @DisplayName("Sessions of one connection have transactions of their own")
    void independent() throws JMSException {
        Connection connection = connect();
        Session one = transacted(connection);
        Session two = transacted(connection);
        Queue queue = one.createQueue(name("q"));
        publish(one, one.createProducer(queue), "one");
        publish(two, two.createProducer(queue), "two");
        two.commit();
        MessageConsumer reader = reader(queue);
        assertEquals(List.of("two"), rest(reader));
        one.rollback();
        assertNothing(reader);
    }

    @Test
    @DisplayName("A session that is closed without a commit has done nothing")
    void closedWithoutCommit() throws JMSException {
        Queue queue = filled("q", "1", "2");
        Connection connection = connect();
        Session session = transacted(connection);
        publish(session, session.createProducer(queue), "3");
        assertEquals("1", text(session.createConsumer(queue)));
        session.close();
        MessageConsumer reader = session(connection).createConsumer(queue);
        Message first = next(reader);
        assertEquals("1", first.getBody(String.class));
        assertTrue(first.getJMSRedelivered());
        assertEquals(List.of("2"), rest(reader));
    }

    @Test
    @DisplayName("A consumer may be closed before the commit: what it received stays with the transaction")
    void consumerClosedBeforeCommit() throws JMSException {
        Queue queue = filled("q", "1", "2");
        Session session = transacted(connect("jms.prefetchPolicy.all=1"));
        MessageConsumer consumer = session.createConsumer(queue);
        assertEquals("1", text(consumer));
        consumer.close();
        MessageConsumer reader = reader(queue);
        assertEquals(List.of("2"), rest(reader));
        session.rollback();
        assertEquals("1", text(reader));
    }

    @Test
    @DisplayName("A durable subscription: rolled back deliveries come again, and its subscribers are those of the commit")
    void durableSubscription() throws JMSException {
        Topic topic = topic("t");
        Session session = transacted(connect());
        publish(session, session.createProducer(topic), "1", "2");
        MessageConsumer late = session.createSharedDurableConsumer(topic, name("s"));
        session.commit();
        assertEquals(List.of("1", "2"), texts(late, 2));
        session.rollback();
        assertEquals(List.of("1", "2"), texts(late, 2));
        session.commit();
        assertNothing(late);
        late.close();
        session.unsubscribe(name("s"));
    }

    @Test
    @DisplayName("A listener rolls back what it can't handle, and gets it again")
    void listener() throws Exception {
        Queue queue = filled("q", "1", "2");
        Session session = transacted(connect());
        CompletableFuture<List<String>> seen = new CompletableFuture<>();
        List<String> so = new CopyOnWriteArrayList<>();
        session.createConsumer(queue).setMessageListener(message -> {
            try {
                so.add(message.getBody(String.class) + message.getIntProperty("JMSXDeliveryCount"));
                if (message.getJMSRedelivered() || so.size() > 1) {
                    session.commit();
                } else {
                    session.rollback();
                }
                if (so.size() == 3) {
                    seen.complete(so);
                }
            } catch (JMSException failed) {
                seen.completeExceptionally(failed);
            }
        });
        assertEquals("11", seen.get(SOON, TimeUnit.MILLISECONDS).get(0));
        assertTrue(so.containsAll(List.of("11", "12", "21")), so::toString);
    }

    @Test
    @DisplayName("Many messages in one transaction")
    void many() throws JMSException {
        Session session = transacted(connect());
        Queue queue = session.createQueue(name("q"));
        MessageProducer producer = session.createProducer(queue);
        for (int number = 0; number < 3_000; number++) {
            producer.send(session.createTextMessage(String.valueOf(number)));
        }
        session.commit();
        MessageConsumer consumer = session.createConsumer(queue);
        for (int number = 0; number < 3_000; number++) {
            assertEquals(String.valueOf(number), text(consumer));
        }
        session.commit();
        assertNothing(consumer);
    }

    @Test
    @DisplayName("A connection that closes rolls back: received messages go to others, counted; sent ones never were")
    void closedConnection() throws JMSException {
        Queue queue = filled("work", "1");
        Connection closing = connect();
        Session session = transacted(closing);
        assertEquals("1", text(session.createConsumer(queue)));
        publish(session, session.createProducer(queue), "never");
        closing.close();
        MessageConsumer other = session().createConsumer(queue);
        Message again = next(other);
        assertEquals("1", again.getBody(String.class));
        assertTrue(again.getJMSRedelivered());
        assertNothing(other);
    }

    @Test
    @DisplayName("Messages are routed at commit, to the subscriptions that exist then")
    void routedAtCommit() throws JMSException {
        Topic topic = topic("orders");
        Session session = transacted(connect());
        Session others = session();
        others.createSharedDurableConsumer(topic, name("ended")).close();
        publish(session, session.createProducer(topic), "order");
        others.unsubscribe(name("ended"));
        MessageConsumer made = others.createSharedDurableConsumer(topic, name("made"));
        session.commit();
        assertEquals("order", text(made));
        assertNothing(others.createSharedDurableConsumer(topic, name("ended")));
    }

    @Test
    @DisplayName("To a queue and to topics in one transaction, with bodies of different sizes")
    void severalDestinations() throws JMSException {
        Topic topic = topic("orders");
        Queue queue = session().createQueue(name("work"));
        MessageConsumer subscriber = session().createSharedDurableConsumer(topic, name("s"));
        Session session = transacted(connect());
        String large = "x".repeat(300_000);
        publish(session, session.createProducer(topic), "small", large);
        publish(session, session.createProducer(queue), large);
        assertNothing(subscriber);
        session.commit();
        assertEquals(List.of("small", large), texts(subscriber, 2));
        assertEquals(large, text(session().createConsumer(queue)));
    }
}

package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.ConnectionConsumer;
import jakarta.jms.ConnectionMetaData;
import jakarta.jms.IllegalStateException;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSConsumer;
import jakarta.jms.JMSContext;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageListener;
import jakarta.jms.Queue;
import jakarta.jms.ServerSession;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Starting, stopping and closing, and who calls listeners: Jakarta Messaging 3.1, chapters 6 and 8. */
@DisplayName("The life of connections and sessions")
class ConnectionLifeTest extends JmsTestCase {
    @Test
    @DisplayName("Nothing is delivered before start and while stopped; what came meanwhile waits, in order")
    void stopAndStart() throws JMSException {
        Topic topic = topic("orders");
        Connection connection = connect();
        MessageConsumer consumer = session(connection).createSharedDurableConsumer(topic, name("s"));
        connection.stop();
        send(topic, "1", "2");
        assertNothing(consumer);
        connection.start();
        assertEquals("1", text(consumer));
        connection.stop();
        send(topic, "3");
        assertNothing(consumer);
        connection.start();
        assertEquals(List.of("2", "3"), texts(consumer, 2));
    }

    @Test
    @DisplayName("A context starts with its first consumer, or, with autoStart off, when it is told to")
    void autoStart() throws JMSException {
        Queue queue = publishing().createQueue(name("work"));
        OwnBrokerCase.publish(publishing(), queue, "1", "2");
        try (JMSContext parent = TestBroker.factory(TestBroker.uri()).createContext(JMSContext.AUTO_ACKNOWLEDGE)) {
            assertEquals("1", parent.createConsumer(queue).receive(SOON).getBody(String.class));
        }
        try (JMSContext context = TestBroker.factory(TestBroker.uri()).createContext(JMSContext.AUTO_ACKNOWLEDGE)) {
            context.setAutoStart(false);
            JMSConsumer consumer = context.createConsumer(queue);
            assertNull(consumer.receiveNoWait());
            context.start();
            assertEquals("2", consumer.receive(SOON).getBody(String.class));
        }
    }

    @Test
    @DisplayName("Contexts made from one share its connection, which ends with the last of them")
    void sharedConnection() throws JMSException {
        String client = name("client");
        JMSContext first = TestBroker.factory(TestBroker.uri()).createContext(JMSContext.AUTO_ACKNOWLEDGE);
        first.setClientID(client);
        try (JMSContext second = first.createContext(JMSContext.CLIENT_ACKNOWLEDGE)) {
            assertEquals(client, second.getClientID());
            first.close();
            second.createProducer().send(second.createQueue(name("work")), "the connection is there");
            assertThrows(JMSException.class, () -> connectAs(client));
        }
        connectAs(client);
    }

    @Test
    @DisplayName("Closing a consumer, a session or a connection ends a receive that waits, with null")
    void closingEndsReceive() throws Exception {
        for (int what = 0; what < 3; what++) {
            Connection connection = connect();
            Session session = session(connection);
            MessageConsumer consumer = session.createConsumer(session.createQueue(name("empty")));
            CompletableFuture<Message> received = new CompletableFuture<>();
            Thread receiving = new Thread(() -> {
                try {
                    received.complete(consumer.receive());
                } catch (JMSException error) {
                    received.completeExceptionally(error);
                }
            });
            receiving.start();
            while (receiving.getState() != Thread.State.WAITING && receiving.getState() != Thread.State.TIMED_WAITING) {
                receiving.join(10);
            }
            List.<AutoCloseable>of(consumer, session, connection).get(what).close();
            assertNull(received.get(SOON, TimeUnit.MILLISECONDS));
        }
    }

    @Test
    @DisplayName("What is closed can be closed again, and can do nothing else")
    void closed() throws JMSException {
        Connection connection = connect();
        Session session = session(connection);
        Queue queue = session.createQueue(name("work"));
        MessageConsumer consumer = session.createConsumer(queue);
        var producer = session.createProducer(queue);
        connection.close();
        connection.close();
        session.close();
        consumer.close();
        producer.close();
        assertThrows(IllegalStateException.class, () -> session.createConsumer(queue));
        assertThrows(IllegalStateException.class, consumer::receiveNoWait);
        assertThrows(IllegalStateException.class, () -> producer.send(queue, publishing().createMessage()));
        assertThrows(IllegalStateException.class, () -> session(connection));
    }

    @Test
    @DisplayName("What can't be: a null destination, commit outside a transaction, recover inside one, a ClientID set late")
    void misused() throws JMSException {
        Session session = session();
        assertThrows(InvalidDestinationException.class, () -> session.createConsumer(null));
        assertThrows(InvalidDestinationException.class, () -> session.createBrowser(null));
        assertThrows(InvalidDestinationException.class,
                () -> session.createProducer(null).send((Queue) null, session.createMessage()));
        assertThrows(UnsupportedOperationException.class, () -> session.createProducer(null).send(session.createMessage()));
        assertThrows(InvalidDestinationException.class, () -> session.unsubscribe(name("never made")));
        assertThrows(IllegalStateException.class, session::commit);
        Connection connection = connect();
        assertThrows(IllegalStateException.class, connection.createSession(Session.SESSION_TRANSACTED)::recover);
        assertThrows(IllegalStateException.class, () -> connection.setClientID(name("late")));
    }

    @Test
    @DisplayName("A session calls one listener at a time, however many consumers it has; two sessions don't wait for each other")
    void oneAtATime() throws Exception {
        Session session = session();
        AtomicInteger inside = new AtomicInteger();
        BlockingQueue<Integer> seen = new LinkedBlockingQueue<>();
        MessageListener listener = message -> {
            seen.add(inside.incrementAndGet());
            Thread.onSpinWait();
            inside.decrementAndGet();
        };
        for (String stem : List.of("one", "two", "three")) {
            Queue queue = session.createQueue(name(stem));
            OwnBrokerCase.publish(publishing(), queue, Collections.nCopies(40, "x").toArray(String[]::new));
        }
        for (String stem : List.of("one", "two", "three")) {
            session.createConsumer(session.createQueue(name(stem))).setMessageListener(listener);
        }
        for (int count = 0; count < 120; count++) {
            assertEquals(1, seen.poll(SOON, TimeUnit.MILLISECONDS));
        }
    }

    @Test
    @DisplayName("A connection consumer hands messages of a queue, and of a shared durable subscription, to a server's sessions")
    void connectionConsumers() throws Exception {
        Connection connection = connect();
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        Session session = session(connection);
        session.setMessageListener(message -> {
            try {
                seen.add(message.getBody(String.class));
            } catch (JMSException error) {
                throw new java.lang.IllegalStateException(error);
            }
        });
        ServerSession server = new ServerSession() {
            @Override
            public Session getSession() {
                return session;
            }

            @Override
            public void start() {
                session.run();
            }
        };
        Queue queue = session.createQueue(name("work"));
        Topic topic = topic("orders");
        ConnectionConsumer ofQueue = connection.createConnectionConsumer(queue, "region = 'eu'", () -> server, 10);
        ConnectionConsumer ofTopic = connection.createSharedDurableConnectionConsumer(topic, name("s"), null, () -> server, 10);
        OwnBrokerCase.publish(publishing(), queue, "not selected");
        Message selected = publishing().createTextMessage("selected");
        selected.setStringProperty("region", "eu");
        publishing().createProducer(queue).send(selected);
        assertEquals("selected", seen.poll(SOON, TimeUnit.MILLISECONDS));
        send(topic, "1");
        assertEquals("1", seen.poll(SOON, TimeUnit.MILLISECONDS));
        ofQueue.close();
        ofTopic.close();
        send(topic, "2");
        assertEquals("2", text(session().createSharedDurableConsumer(topic, name("s"))));
    }

    @Test
    @DisplayName("The connection tells its version of JMS and which JMSX properties it knows")
    void metaData() throws JMSException {
        ConnectionMetaData told = connect().getMetaData();
        assertEquals(3, told.getJMSMajorVersion());
        Set<Object> names = new HashSet<>(Collections.list((java.util.Enumeration<?>) told.getJMSXPropertyNames()));
        assertTrue(names.containsAll(Set.of("JMSXDeliveryCount", "JMSXGroupID", "JMSXGroupSeq")), names::toString);
    }
}

package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.penstock.jms.OwnBroker.Ending;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.InvalidSelectorException;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.List;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Selectors and no-local on subscriptions, over restarts, and with auto-creation off; Headers exchanges. */
@DisplayName("What a subscription selects")
class SelectionTest extends OwnBrokerCase {
    private static void send(Session session, Topic topic, String text, int amount, String region) throws JMSException {
        TextMessage message = session.createTextMessage(text);
        message.setIntProperty("amount", amount);
        message.setStringProperty("region", region);
        try (MessageProducer producer = session.createProducer(topic)) {
            producer.send(message);
        }
    }

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("A selector holds over a restart, for the backlog and for what is published then")
    void selectorOverRestart(Ending ending) throws Exception {
        startBroker();
        Session session = own();
        Topic topic = session.createTopic("orders");
        String selector = "amount > 1000 AND region IN ('eu', 'us')";
        session.createSharedDurableConsumer(topic, "s", selector).close();
        send(session, topic, "large", 2000, "eu");
        send(session, topic, "small", 10, "eu");
        broker.restart(ending);
        send(session, topic, "later", 3000, "us");
        send(session, topic, "elsewhere", 3000, "asia");
        MessageConsumer consumer = session.createSharedDurableConsumer(topic, "s", selector);
        assertEquals(List.of("large", "later"), texts(consumer, 2));
        assertNothing(consumer);
    }

    @Test
    @DisplayName("A bad selector is refused: by the client, and by the broker with its position where the client doesn't look")
    void badSelector() throws Exception {
        startBroker();
        Session session = own();
        Topic topic = session.createTopic("orders");
        assertThrows(InvalidSelectorException.class, () -> session.createConsumer(topic, "amount >"));
        JmsConnectionFactory careless = failover("jms.validateSelector=false");
        Session other = session(open(careless));
        JMSException refusal = assertRefused("amqp:invalid-field", () -> other.createConsumer(topic, "amount >"));
        assertTrue(refusal.getMessage().contains("at character 9"), refusal.getMessage());
        assertRefused("amqp:invalid-field", () -> other.createConsumer(other.createQueue("work"), "amount >"));
    }

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("No-local on a durable subscription goes by ClientID, across connections and restarts")
    void noLocalAcrossReconnects(Ending ending) throws Exception {
        startBroker();
        var first = openAs("app");
        Session session = session(first);
        Topic topic = session.createTopic("orders");
        session.createDurableConsumer(topic, "d", null, true).close();
        publish(session, topic, "own 1");
        first.close();
        broker.restart(ending);

        var second = openAs("app");
        Session again = session(second);
        publish(again, topic, "own 2");
        publish(own(), topic, "of others");
        MessageConsumer consumer = again.createDurableConsumer(topic, "d", null, true);
        assertEquals("of others", text(consumer));
        assertNothing(consumer);
    }

    @Test
    @DisplayName("With auto-creation off an unknown topic is an InvalidDestinationException, for each kind of consumer")
    void unknownTopic() throws Exception {
        startBroker(false, ONLY_WHAT_IS_DECLARED);
        Session session = session(openAs("app"));
        Topic topic = session.createTopic("unknown");
        assertRefused(InvalidDestinationException.class, NOT_FOUND, () -> session.createConsumer(topic));
        assertRefused(InvalidDestinationException.class, NOT_FOUND, () -> session.createDurableConsumer(topic, "d"));
        assertRefused(InvalidDestinationException.class, NOT_FOUND, () -> session.createSharedConsumer(topic, "s"));
        assertRefused(InvalidDestinationException.class, NOT_FOUND, () -> session.createSharedDurableConsumer(topic, "s"));
        assertRefused(InvalidDestinationException.class, NOT_FOUND, () -> session.createProducer(topic));
    }

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("A Headers exchange routes by properties, all of a binding's or any; and over a restart")
    void headersExchange(Ending ending) throws Exception {
        startBroker(false, ONLY_WHAT_IS_DECLARED);
        broker.declare("""
                - {type: penstock.exchange, name: orders, body: {exchangeType: Headers}}
                - type: penstock.subscription
                  body:
                    subscriptionName: both
                    owner: {clusterId: c, kind: Subscription, namespace: n, name: both, uid: u-both, deletionPolicy: Retain}
                    exchange: orders
                    headerBindings: [{match: All, headers: {region: eu, amount: 5}}]
                - type: penstock.subscription
                  body:
                    subscriptionName: either
                    owner: {clusterId: c, kind: Subscription, namespace: n, name: either, uid: u-either, deletionPolicy: Retain}
                    exchange: orders
                    headerBindings: [{match: Any, headers: {region: eu, amount: 5}}]
                """);
        Session session = own();
        Topic topic = session.createTopic("orders");
        send(session, topic, "eu 5", 5, "eu");
        send(session, topic, "us 5", 5, "us");
        broker.restart(ending);
        send(session, topic, "eu 6", 6, "eu");
        send(session, topic, "us 6", 6, "us");
        MessageConsumer both = session.createSharedDurableConsumer(topic, "both");
        MessageConsumer either = session.createSharedDurableConsumer(topic, "either");
        assertEquals(List.of("eu 5", "us 5", "eu 6"), texts(either, 3));
        assertEquals("eu 5", text(both));
        assertNothing(both);
        assertNothing(either);
    }

    @Test
    @DisplayName("A JMS consumer of a Headers exchange reduces by its selector")
    void headersExchangeBySelector() throws Exception {
        startBroker();
        Session session = own();
        Topic topic = session.createTopic("amq.match");
        MessageConsumer consumer = session.createConsumer(topic, "region = 'eu'");
        send(own(), topic, "eu", 1, "eu");
        send(own(), topic, "us", 1, "us");
        assertEquals("eu", text(consumer));
        assertNothing(consumer);
    }

    @Test
    @DisplayName("Several binding keys and a selector of a declared subscription hold over a restart; none doubles a message")
    void severalKeys() throws Exception {
        startBroker(false, ONLY_WHAT_IS_DECLARED);
        broker.declare("""
                - {type: penstock.exchange, name: orders, body: {exchangeType: Topic}}
                - type: penstock.subscription
                  body:
                    subscriptionName: s
                    owner: {clusterId: c, kind: Subscription, namespace: n, name: s, uid: u, deletionPolicy: Retain}
                    exchange: orders
                    bindingKeys: ["eu.#", "*.fr", "us.ny"]
                    selector: "amount > 10"
                """);
        Session session = own();
        for (String round : List.of("before", "after")) {
            for (String key : List.of("eu.fr", "us.fr", "us.ny", "us.la")) {
                send(session, session.createTopic("orders/" + key), key + " " + round, 11, "any");
                send(session, session.createTopic("orders/" + key), key + " small", 10, "any");
            }
            if (round.equals("before")) {
                broker.restart(Ending.KILLED);
            }
        }
        MessageConsumer consumer = session.createSharedDurableConsumer(session.createTopic("orders"), "s");
        assertEquals(List.of("eu.fr before", "us.fr before", "us.ny before", "eu.fr after", "us.fr after", "us.ny after"),
                texts(consumer, 6));
        assertNothing(consumer);
    }

    @Test
    @DisplayName("No-local on a volatile consumer goes by connection, also after it has found the broker again")
    void noLocalOfAConnection() throws Exception {
        startBroker(false, ONLY_WHAT_IS_DECLARED);
        broker.declare("- {type: penstock.exchange, name: orders, body: {exchangeType: Topic}}");
        Session session = own();
        Session other = own();
        Topic topic = session.createTopic("orders");
        MessageConsumer consumer = session.createConsumer(topic, null, true);
        for (int round = 0; round < 2; round++) {
            publish(session, topic, "own");
            publish(other, topic, "of others");
            assertEquals("of others", text(consumer));
            if (round == 0) {
                broker.restart(Ending.TERMINATED);
            }
            assertNothing(consumer); // and so it is there again
        }
    }
}

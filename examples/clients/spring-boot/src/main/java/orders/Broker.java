package orders;

import jakarta.jms.Connection;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.JMSException;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.jms.autoconfigure.DefaultJmsListenerContainerFactoryConfigurer;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.jms.config.DefaultJmsListenerContainerFactory;
import org.springframework.jms.connection.CachingConnectionFactory;

/** One connection for the template and the listeners, without a ClientID, so that all pods share the subscription. */
@Configuration
class Broker {
    /** Logs in at once, so that a wrong password ends the program and does not become a line of the log every five seconds. */
    @Bean
    CachingConnectionFactory connectionFactory(
            @Value("${orders.url}") String url,
            @Value("${orders.user}") String user,
            @Value("${orders.password}") String password)
            throws JMSException {
        JmsConnectionFactory broker = new JmsConnectionFactory(user, password, url);
        try (Connection login = broker.createConnection()) {
            login.start(); // waits until the broker is there, and throws if it refuses the login
        }
        CachingConnectionFactory factory = new CachingConnectionFactory(broker);
        factory.setCacheConsumers(false); // a listener that stops leaves its subscription
        return factory;
    }

    /** What @JmsListener names: a subscription that is durable and shared. */
    @Bean
    DefaultJmsListenerContainerFactory sharedDurable(
            DefaultJmsListenerContainerFactoryConfigurer configurer, ConnectionFactory connectionFactory) {
        DefaultJmsListenerContainerFactory factory = new DefaultJmsListenerContainerFactory();
        configurer.configure(factory, connectionFactory);
        factory.setSubscriptionDurable(true);
        factory.setSubscriptionShared(true);
        return factory;
    }
}

package dev.penstock.jms.tool;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.apache.qpid.jms.JmsConnectionFactory;

/** How to reach the broker: {@code --uri}, {@code --user}, {@code --password}, and {@code --ca} for TLS, one PEM file of all to trust. */
final class Access {
    private Access() {}

    static JmsConnectionFactory factory(Options options) throws IOException, GeneralSecurityException {
        JmsConnectionFactory factory = new JmsConnectionFactory(
                options.text("user", "guest"), options.text("password", "guest"), options.required("uri"));
        String authority = options.text("ca", "");
        if (!authority.isEmpty()) {
            factory.setSslContext(trusting(Path.of(authority)));
        }
        return factory;
    }

    private static SSLContext trusting(Path authority) throws IOException, GeneralSecurityException {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (InputStream pem = Files.newInputStream(authority)) {
            int number = 0;
            for (Certificate each : CertificateFactory.getInstance("X.509").generateCertificates(pem)) {
                store.setCertificateEntry("authority-" + number++, each);
            }
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        return context;
    }
}

def pytest_configure(config):
    """Load the fixtures, and torch, in processes that run tests.

    pytest-xdist's own process deals them out and starts eight seconds earlier without.
    """
    if config.getoption('dist', 'no') == 'no':
        config.pluginmanager.import_plugin('common_fixtures')

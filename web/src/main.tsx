import { render } from 'preact';
import { App } from './app';
import { applyTheme } from './preferences';
import 'uplot/dist/uPlot.min.css';
import './style.css';

applyTheme();
const root = document.getElementById('root');
if (root) {
  root.replaceChildren();
  render(<App />, root);
}
